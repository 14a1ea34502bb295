#!/bin/sh
# Builds the rivals' virtual environment: `.venv-peers` at the repository root, or the folder given as the first argument.
# Every rival of requirements-peers.txt is optional: what cannot be installed is reported and left out.
#
# torch: a CPU wheel is taken where pip finds one (find-links, or an index in TORCH_INDEX_URL). Where only the CUDA build is to be
# had, its wheel (526 MB) is installed without the 2 GB of CUDA libraries, which cuda_stubs.py replaces: 1.2 GB on disk, CPU only.
set -u
here=$(cd "$(dirname "$0")" && pwd)
venv=${1:-$here/../../.venv-peers}
python=${PYTHON:-python3}
missing=

command -v "$python" >/dev/null || { echo "make-peers-venv: no $python: install Python 3.11 or newer" >&2; exit 1; }
"$python" -m venv "$venv" || { echo "make-peers-venv: $python has no venv module: install python3-venv" >&2; exit 1; }
pip="$venv/bin/python -m pip --quiet --disable-pip-version-check"

install_torch() {
    $pip install --no-deps ${TORCH_INDEX_URL:+--index-url "$TORCH_INDEX_URL"} "$1" &&
        $pip install typing_extensions filelock sympy networkx jinja2 fsspec setuptools || return 1
    "$venv/bin/python" -c "import torch" 2>/dev/null && return 0
    "$venv/bin/python" "$here/cuda_stubs.py" "$("$venv/bin/python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')/torch/lib" &&
        "$venv/bin/python" -c "import torch; torch.ones(2).sum()"
}

for requirement in $(grep -v '^#' "$here/requirements-peers.txt"); do
    name=${requirement%%[=<>]*}
    case $name in
        torch) install_torch "$requirement" ;;
        *) $pip install "$requirement" ;;
    esac 2>"$venv/$name.log" && "$venv/bin/python" -c "import $name" 2>>"$venv/$name.log" && continue
    echo "make-peers-venv: $name left out, see $venv/$name.log" >&2
    missing="$missing $name"
done

echo "rivals in $venv; left out:${missing:- none}"
