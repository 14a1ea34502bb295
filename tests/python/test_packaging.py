"""The installed package: the files of the wheel and of the source distribution, and the cost of importing it."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tomllib
from importlib import metadata

import pytest

import burtorch

# C functions of long double, which is float128 on some machines.
NAMES = "exp exp2 expm1 log log1p log2 log10 sin cos tan sinh cosh tanh asin acos atan pow hypot erf erfc lgamma cbrt"
LONG_DOUBLE = {f"{name}l" for name in NAMES.split()}


@pytest.fixture(scope="module")
def wheel():
    """The names of the installed files."""
    return {str(path) for path in metadata.files("burtorch")}


def test_the_wheel_holds_code_types_and_data(wheel):
    for name in (
        "__init__.py",
        "py.typed",
        "_core.pyi",
        "data/words.txt",
        "cli/reproduce/schema.json",
        "cli/reproduce/paper.csv",
        "cli/__init__.py",
        "__main__.py",
    ):
        assert f"burtorch/{name}" in wheel
    assert any(name.startswith("burtorch/_core.") and name.endswith((".so", ".pyd")) for name in wheel)


def test_the_wheel_holds_both_licences_and_the_bill_of_materials(wheel):
    for name in ("licenses/LICENSE-MIT", "licenses/LICENSE-APACHE", "sboms/burtorch.cdx.json"):
        assert any(path.endswith(f".dist-info/{name}") for path in wheel)


def test_the_wheel_holds_nothing_else(wheel):
    strays = [
        name
        for name in wheel
        if not name.startswith(("burtorch/", "burtorch-")) and not name.endswith(("bin/burtorch", "burtorch.exe"))
    ]
    assert strays == []


@pytest.mark.skipif(shutil.which("nm") is None, reason="nm lists what the module asks for")
def test_float128_takes_nothing_of_a_mathematical_library():
    # Only glibc has functions of float128, so a module that needed one would load only on Linux.
    command = ["nm", *(["-D"] if sys.platform.startswith("linux") else []), "--undefined-only", burtorch._core.__file__]
    listed = subprocess.run(command, capture_output=True, encoding="utf-8", check=True).stdout
    symbols = set(re.findall(r"\bU _?(\w+)", listed))
    assert "PyLong_FromLong" in symbols
    assert {name for name in symbols if name.endswith(("f128", "f128_r")) or name in LONG_DOUBLE} == set()


def test_the_bill_of_materials_is_that_of_the_lock_and_names_no_folder(root):
    text = (root / "crates/burtorch-py/burtorch.cdx.json").read_text("utf-8")
    bill = json.loads(text)
    assert not {"/", "\\"} & set(text.replace("pkg:cargo/", ""))
    locked = {
        (package["name"], package["version"]): package
        for package in tomllib.loads((root / "Cargo.lock").read_text("utf-8"))["package"]
    }
    listed = {entry["bom-ref"]: entry for entry in [bill["metadata"]["component"], *bill["components"]]}
    needs = {entry["ref"]: entry["dependsOn"] for entry in bill["dependencies"]}
    assert set(needs) == set(listed) == {"pkg:cargo/burtorch-py@" + burtorch.__version__}.union(*needs.values())
    for key, entry in listed.items():
        package = locked[entry["name"], entry["version"]]
        checksum = package.get("checksum")
        assert entry.get("hashes") == (checksum and [{"alg": "SHA-256", "content": checksum}])
        # The lock file also lists test-only dependencies of this repository's crates.
        own = root / "crates" / entry["name"] / "Cargo.toml"
        if own.exists():
            facts = tomllib.loads(own.read_text("utf-8"))
            expected = {*facts["dependencies"], *facts.get("build-dependencies", {})}
        else:
            expected = {name.partition(" ")[0] for name in package.get("dependencies", [])}
        assert {listed[need]["name"] for need in needs[key]} == expected, key


def test_the_metadata():
    facts = metadata.metadata("burtorch")
    assert facts["Version"] == burtorch.__version__
    assert facts["License-Expression"] == "MIT OR Apache-2.0"
    assert "burtorch" in facts.get_payload() or "burtorch" in facts["Description"]


def test_the_only_thing_it_needs_is_the_progress_bar():
    needed = [line for line in metadata.requires("burtorch") if "extra ==" not in line]
    assert [line.split(">")[0] for line in needed] == ["tqdm"]


def test_the_versions_of_python_are_stated_consistently():
    facts = metadata.metadata("burtorch")
    (oldest,) = re.findall(r"^>=3\.(\d+)$", facts["Requires-Python"])
    told = re.findall(r"^Programming Language :: Python :: 3\.(\d+)$", "\n".join(facts.get_all("Classifier")), re.M)
    assert told
    assert [int(minor) for minor in told] == list(range(int(oldest), int(oldest) + len(told)))


def test_classifiers_claim_what_was_tested(root):
    """Those of pyproject.toml, because an installed package may be older."""
    claimed = tomllib.loads((root / "pyproject.toml").read_text())["project"]["classifiers"]
    minors = {name.split(".")[1] for name in claimed if name.startswith("Programming Language :: Python :: 3.")}
    rows = [line.split("|") for line in (root / "docs/platforms.md").read_text().splitlines() if "CPython 3" in line]
    tested = {re.search(r"CPython 3\.(\d+)", row[1])[1] for row in rows if len(row) > 3 and "run: every test" in row[3]}
    assert minors == tested
    assert ("Programming Language :: Python :: Free Threading :: 1 - Unstable" in claimed) == ("14t" not in tested)


def source_distribution(root, folder):
    command = [sys.executable, "-m", "maturin", "sdist", "--out", str(folder)]
    environment = {**os.environ, "SOURCE_DATE_EPOCH": "1700000000"}
    subprocess.run(command, cwd=root, check=True, capture_output=True, env=environment)
    (archive,) = folder.iterdir()
    return archive


def files_below(root, folder):
    caches = ("__pycache__", ".ruff_cache")
    paths = [path.relative_to(root) for path in (root / folder).rglob("*") if path.is_file()]
    return {path.as_posix() for path in paths if not any(part in caches for part in path.parts)}


def test_the_source_distribution_holds_all_that_a_clone_holds_and_is_the_same_each_time(root, tmp_path):
    for name in ("once", "again"):
        (tmp_path / name).mkdir()
    archive = source_distribution(root, tmp_path / "once")
    with tarfile.open(archive) as tar:
        names = {name.partition("/")[2] for name in tar.getnames()}
    needed = {
        *("Cargo.toml", "Cargo.lock", "pyproject.toml", "README.md", "LICENSE-MIT", "LICENSE-APACHE", "PKG-INFO"),
        *("Makefile", "ARCHITECTURE.md", "CONTRIBUTING.md", "CHANGELOG.md", "requirements-dev.txt"),
        *(".cargo/config.toml", "clippy.toml", "rustfmt.toml", "rust-toolchain.toml"),
    }
    for folder in ("benches", "crates", "docs", "examples", "python", "scripts", "tests"):
        needed |= files_below(root, folder)
    assert needed - names == set()
    assert [name for name in names if name.endswith((".so", ".pyd", ".pyc")) or "_cache/" in name] == []
    assert archive.read_bytes() == source_distribution(root, tmp_path / "again").read_bytes()


def loaded_by(code):
    """The modules that ``code`` imports in a new interpreter, beyond the initial ones."""
    script = f"import sys; before = set(sys.modules); {code}; print(*sorted(set(sys.modules) - before))"
    done = subprocess.run([sys.executable, "-I", "-c", script], capture_output=True, encoding="utf-8", check=True)
    return set(done.stdout.split())


def test_importing_the_package_imports_almost_nothing():
    loaded = loaded_by("import burtorch")
    assert len(loaded) <= 4, loaded
    assert loaded >= {"burtorch", "burtorch._core"}


@pytest.mark.parametrize("name", ["compress", "data", "nn", "optim", "system", "text"])
def test_submodules_come_when_first_used(name):
    assert f"burtorch.{name}" not in loaded_by("import burtorch")
    loaded = loaded_by(f"import burtorch; burtorch.{name}")
    assert f"burtorch.{name}" in loaded
    assert not {module.partition(".")[0] for module in loaded} & {"numpy", "argparse", "tqdm", "matplotlib", "json"}


def test_a_model_trains_without_numpy():
    code = (
        "import burtorch as bt; p = bt.Parameters(); m = bt.nn.CharMLP(p, vocab=3, context=2, embedding=2, hidden=2); "
        "bt.Oracle(m)([[0, 1]], [2]); bt.optim.SGD(p, lr=0.1).step(); memoryview(p.values)[0]"
    )
    assert "numpy" not in loaded_by(code)


WITHOUT_NUMPY = """
import sys
sys.modules["numpy"] = None
import burtorch as bt
f = bt.function(lambda x, y: x * y)
for call in [
    {calls}
]:
    try:
        call()
    except ModuleNotFoundError as error:
        print(error, error.name, sep="|")
"""


def errors_without_numpy(*calls: str) -> list[str]:
    code = WITHOUT_NUMPY.replace("{calls}", ", ".join(f"lambda: {call}" for call in calls))
    done = subprocess.run([sys.executable, "-I", "-c", code], capture_output=True, text=True, check=True)
    return done.stdout.splitlines()


def test_names_that_need_numpy_say_how_to_install_it():
    names = ["sum", "median", "norm", "layer_norm", "opt", "autograd"]
    text = "burtorch.{} needs NumPy, which is not installed (pip install numpy)|numpy"
    assert errors_without_numpy(*(f"bt.{name}" for name in names)) == [text.format(name) for name in names]


def test_calls_that_need_numpy_say_how_to_install_it():
    calls = [
        "f.hessian(1.0, 2.0)",
        "f.map([1.0], [2.0])",
        "bt.array([1.0])",
        "bt.exp([1.0, 2.0])",
        "bt.softmax([1.0, 2.0])",
        "bt.compress.TopK(1).compress([1.0, 2.0]).values",
    ]
    text = "arrays need NumPy, which is not installed (pip install numpy)"
    assert [error.split("|")[0] for error in errors_without_numpy(*calls)] == [text] * len(calls)


def test_every_public_name_exists():
    for name in burtorch.__all__:
        assert getattr(burtorch, name) is not None
        assert name in dir(burtorch)
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = burtorch.nothing
