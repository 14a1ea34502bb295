"""Vectors stored by clients: in float32 if a method allows it, and only for clients that have taken part."""

from __future__ import annotations

import hashlib
import subprocess
import sys
from fractions import Fraction

import numpy as np
import pytest

from burtorch import compress, opt

N, D = 40, 9
RNG = np.random.default_rng(4)
FEATURES, TARGETS = RNG.normal(size=(N, D)), RNG.normal(size=N) * 10.0 ** RNG.integers(-3, 4, size=N)
TOP = compress.TopK(2)
METHODS = {
    "EF21": lambda f, **more: opt.EF21(f, compressor=TOP, **more),
    "EF21 TopLEK": lambda f, **more: opt.EF21(f, compressor=compress.TopLEK(2), **more),
    "EF21 Identity": lambda f, **more: opt.EF21(f, compressor=compress.Identity(), **more),
    "EF21-PP": lambda f, **more: opt.EF21PP(f, compressor=TOP, cohort=opt.Nice(1), **more),
    "EF21-SGDM": lambda f, **more: opt.EF21SGDM(f, compressor=TOP, momentum=0.3, **more),
    "SCAFFOLD": lambda f, **more: opt.Scaffold(f, local_steps=3, cohort=opt.Nice(1), **more),
}


def made(name, clients=5, **more):
    f = opt.least_squares(FEATURES, TARGETS, l2=0.1)
    return METHODS[name](f, **{"clients": clients, "client_dtype": "float32", "step": 0.01, "seed": 6, **more})


def rows(method):
    """The server's mean of the clients' vectors, the mean itself, and all vectors."""
    state = method.state_dict()["arrays"]
    mean, own = ("c", "c_i") if isinstance(method, opt.Scaffold) else ("g", "g_i")
    kept = {key: part for key, part in state.items() if key.endswith("_i")}
    return state[mean], state[own].reshape(method.n_clients, -1), kept


@pytest.mark.parametrize("clients", [1, 3, 7, 20])
@pytest.mark.parametrize("name", METHODS)
def test_the_mean_of_the_server_is_that_of_the_clients(name, clients):
    """In exact arithmetic, up to the rounding of the server's float64: some 10^8 times less than that of float32."""
    for start in ("gradient", "zero"):
        method = made(name, clients, start=start)
        rounds, largest = 200, 0.0
        for _ in range(rounds):
            method.run(1)
            largest = max(largest, *(abs(part).max() for part in rows(method)[2].values()))
        mean, own, kept = rows(method)
        assert {part.dtype for part in kept.values()} == {np.dtype(np.float32)}
        assert mean.dtype == np.float64
        for j in range(D):
            exact = sum(map(Fraction, own[:, j].tolist())) / clients
            assert abs(Fraction(float(mean[j])) - exact) <= Fraction(float(4 * rounds * largest * 2.0**-53))


@pytest.mark.parametrize("name", METHODS)
def test_iterates_are_near_those_of_float64(name):
    single, double = made(name), made(name, client_dtype="float64")
    found = [method.run(100)[-1] for method in (single, double)]
    assert single.x.tobytes() != double.x.tobytes()
    np.testing.assert_allclose(single.x, double.x, rtol=1e-4, atol=1e-5 * abs(double.x).max())
    if "TopLEK" not in name:
        assert (found[0].bits_up, found[0].wire_bytes) == (found[1].bits_up, found[1].wire_bytes)


@pytest.mark.parametrize("name", METHODS)
def test_threads_change_no_bit(name):
    hashes = set()
    for threads in (1, 2, 8):
        method = made(name, clients=13, threads=threads)
        method.run(60)
        parts = method.state_dict()["arrays"]
        hashes.add(hashlib.sha256(b"".join(parts[key].tobytes() for key in sorted(parts))).hexdigest())
    assert len(hashes) == 1


@pytest.mark.parametrize("name", METHODS)
def test_a_method_resumes_bit_for_bit_and_refuses_numbers_it_would_round(name):
    for start in ("gradient", "zero"):
        whole, first, second = (made(name, start=start) for _ in range(3))
        whole.run(30)
        first.run(11)
        second.load_state_dict(first.state_dict())
        second.run(19)
        assert second.x.tobytes() == whole.x.tobytes()
        before = second.state_dict()
        double = made(name, start=start, client_dtype="float64")
        double.run(11)
        with pytest.raises(ValueError, match="float32"):
            second.load_state_dict(double.state_dict())
        after = second.state_dict()
        assert after["round"] == before["round"]
        assert all(after["arrays"][key].tobytes() == part.tobytes() for key, part in before["arrays"].items())
        # float32 numbers are exact in float64: a method without rounding continues from there.
        double.load_state_dict(before)
        assert double.x.tobytes() == second.x.tobytes()


def test_error_feedback_arrives_as_near_as_float32_allows():
    f = opt.least_squares(FEATURES, np.sign(TARGETS), l2=0.1)
    method = opt.EF21(f, clients=5, compressor=TOP, client_dtype="float32")
    scale = np.linalg.norm([f.grad(opt.solve(f), part) for part in method.clients])
    assert method.run(20_000)[-1].grad_norm < 1e-7 * scale


def test_methods_whose_invariants_rounding_would_break_refuse_it():
    f = opt.least_squares(FEATURES, TARGETS, l2=0.1)
    common = {"clients": 4, "client_dtype": "float32", "step": 0.01}
    for method, why, more in (
        (opt.Scaffnew, "sum", {"p": 0.5}),
        (opt.DIANA, "mean", {"compressor": compress.RandK(2)}),
        (opt.DASHA, "biased", {"compressor": compress.RandK(2)}),
        (opt.EF14, "move", {"compressor": TOP}),
        (opt.DCGD, "no vectors", {"compressor": TOP}),
        (opt.MARINA, "no vectors", {"compressor": compress.RandK(2)}),
        (opt.FedAvg, "no vectors", {}),
    ):
        with pytest.raises(ValueError, match=why):
            method(f, **common, **more)
    for compressor in (compress.RandK(2), compress.Natural(), compress.PermK()):
        with pytest.raises(ValueError, match="TopK"):
            opt.EF21(f, compressor=compressor, **common)
    with pytest.raises(ValueError, match="client_dtype"):
        opt.EF21(f, compressor=TOP, clients=4, client_dtype="float16")


MEMORY = """
import sys
import numpy as np
from burtorch import compress, opt

def megabytes(of):
    with open("/proc/self/status") as file:
        return next(int(line.split()[1]) for line in file if line.startswith(of)) / 1024

n, d = 20_000, 1000
starts, columns = np.arange(n + 1), np.arange(n) % d
f = opt.least_squares((starts, columns, np.ones(n), (n, d)), np.ones(n))
method, more = sys.argv[1], {"sampling": opt.Nice(1)}
before = megabytes("VmRSS")
if method == "EF21PP":
    more = {"compressor": compress.TopK(2), "start": "zero", "cohort": opt.Nice(10)}
elif method == "Scaffold":
    more |= {"start": "zero", "cohort": opt.Nice(10)}
elif method == "FedAvg":
    more |= {"cohort": opt.Nice(10)}
elif method == "EF21":
    more = {"compressor": compress.TopK(2), "client_dtype": "float32"}
else:
    more |= {"delays": opt.Delays(np.ones(n), "exponential"), "buffer": 10}
made = getattr(opt, method)(f, clients=n, step=0.1, **more)
made._runner.steps([0.1], 20)
print(megabytes("VmHWM") - before)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
@pytest.mark.parametrize("method", ["EF21PP", "Scaffold", "FedAvg", "FedBuff", "EF21"])
def test_clients_that_never_took_part_take_no_memory(method):
    """A vector for each of these clients would take 160 MB; in float32 80."""
    done = subprocess.run([sys.executable, "-c", MEMORY, method], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    assert float(done.stdout) < (80 + 40 if method == "EF21" else 40)
