"""Refused memory raises a MemoryError and changes nothing.

Every allocation of every call in ``refused_calls`` is refused, alone and with all that follow it, in an extension
built for this purpose (``make refusing``). Any extension runs calls that need more memory than exists.
"""

from __future__ import annotations

import runpy
import subprocess
import sys
from pathlib import Path

import pytest

import burtorch as bt

TABLE = Path(__file__).with_name("refused_calls.py")
CALLS = runpy.run_path(str(TABLE))["CALLS"]
N_PARTS = 4
refusing = pytest.mark.skipif(not hasattr(bt._core, "_refuse"), reason="needs an extension that refuses: make refusing")


def lines_of(*arguments):
    """The output of a complete run of the table."""
    done = subprocess.run([sys.executable, str(TABLE), *map(str, arguments)], capture_output=True, encoding="utf-8")
    at = [line for line in done.stdout.splitlines() if line.startswith("at: ")]
    assert done.returncode == 0, f"exit {done.returncode} {at[-1:]}: {done.stderr[-2000:]}"
    return done.stdout.splitlines()


@refusing
@pytest.mark.parametrize("part", range(N_PARTS))
@pytest.mark.parametrize("mode", ["one", "rest"])
@pytest.mark.parametrize("scene", CALLS)
def test_every_refusal_is_a_memory_error_that_changes_nothing(scene, mode, part):
    lines = lines_of(scene, mode, part, N_PARTS, 30)
    wrong = [line for line in lines if line.startswith("wrong: ")]
    assert not wrong, "\n".join(wrong)
    n_calls, n_refused = map(int, lines[-1].split()[1:])
    print(f"{n_calls} calls, {n_refused} refusals")
    assert n_calls == len(CALLS[scene][part::N_PARTS])


def test_the_table_has_the_public_calls():
    assert sum(map(len, CALLS.values())) >= 400


# A Hessian of 300,000 numbers takes 720 GB, more than any machine that runs this has.
HUGE = {
    "hessian": "bt.function(lambda v: (v * v).sum()).hessian(np.ones(300_000))",
    "jacobian": "bt.function(lambda v: v * 2.0).jacobian(np.ones(300_000))",
    "graph": "bt.Graph(capacity=2**32 - 2, fixed=True, dtype='float64x8')",
}


@pytest.mark.parametrize("name", HUGE)
def test_impossible_sizes_are_memory_errors(name):
    check = f"""
import numpy as np
import burtorch as bt
try:
    {HUGE[name]}
except MemoryError:
    print("refused")
x = bt.Value(2.0)
(x * x).backward()
assert x.grad == 4.0
"""
    done = subprocess.run([sys.executable, "-c", check], capture_output=True, encoding="utf-8", timeout=120)
    assert (done.returncode, done.stdout, done.stderr) == (0, "refused\n", "")


LIMITED = {
    "Vector of a list": ("data = [0.5] * 3_000_000", "bt.Vector(data, graph=g)"),
    "Vector of an array": ("data = np.ones(3_000_000)", "bt.Vector(data, graph=g)"),
    "op": ("v = bt.Vector(np.ones(300_000), graph=g)", "[bt.exp(v) for _ in range(100)]"),
    "softmax": ("v = bt.Vector(np.ones(300_000), graph=g)", "[bt.softmax(v) for _ in range(100)]"),
    "concat": ("v = list(bt.Vector(np.ones(100_000), graph=g))", "bt.concat(*v * 100)"),
    "reduce_sum": ("v = list(bt.Vector(np.ones(100_000), graph=g))", "bt.reduce_sum(v * 100)"),
    "data": ("v = bt.Vector(np.ones(2_000_000), graph=g)", "[v.data for _ in range(100)]"),
    "tracing": ("data = [0.5] * 300_000", "bt.function(lambda v: sum(bt.exp(x * 2.0) for x in v))(data)"),
    "calls": (
        "f = bt.function(lambda v: bt.exp(v)); data = np.ones(100_000); f(data)",
        "[f(data) for _ in range(1000)]",
    ),
    "gradients": (
        "f = bt.function(lambda v: bt.exp(v).sum()); data = np.ones(100_000)",
        "[f.grad(data) for _ in range(1000)]",
    ),
    "planning": ("data = np.ones(400_000)", "bt.function(lambda v: (bt.exp(v) * v).sum()).grad(data)"),
    "jacobian": ("f = bt.function(lambda v: v * 2.0)", "f.jacobian(np.ones(4000))"),
    "hessian": ("f = bt.function(lambda v: (v * v).sum())", "f.hessian(np.ones(4000))"),
    "sparse_hessian": (
        "import scipy.sparse; f = bt.function(lambda v: (v * v).sum())",
        "f.sparse_hessian(np.ones(400_000))",
    ),
    "sparse_jacobian": ("import scipy.sparse; f = bt.function(lambda v: v * v)", "f.sparse_jacobian(np.ones(400_000))"),
    "per_sample_grads": (
        "p = bt.Parameters('float64'); m = bt.nn.MLP(p, [500, 500]); o = bt.Oracle(m, loss='mse')",
        "o.per_sample_grads(np.ones((1000, 500)), np.ones((1000, 500)))",
    ),
    "oracle": (
        "p = bt.Parameters('float64'); m = bt.nn.MLP(p, [2000, 2000])",
        "bt.Oracle(m, loss='mse')(np.ones((4, 2000)), np.ones((4, 2000)))",
    ),
    "file": ("p = bt.Parameters('float64'); p.tensor(3_000_000)", "[p.to_bytes() for _ in range(100)]"),
    "pickle": ("import pickle; v = bt.Vector(np.ones(1_000_000), graph=g)", "[pickle.dumps(g) for _ in range(100)]"),
    "deepcopy": ("import copy; v = bt.Vector(np.ones(1_000_000), graph=g)", "[copy.deepcopy(g) for _ in range(100)]"),
    "WordContexts": ("words = ['abcdefgh' * 100] * 20_000", "bt.text.WordContexts(words, 16)"),
    "TextWindows": ("text = 'abcdefgh' * 1_000_000", "bt.text.TextWindows(text, 16)"),
}


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="limits of the address space are Linux's")
@pytest.mark.parametrize("name", LIMITED)
def test_a_limit_of_memory_is_a_memory_error(name):
    """With little free address space the call is refused, and the graph still works."""
    setup, call = LIMITED[name]
    check = f"""
import re, resource, sys, warnings
import numpy as np
import burtorch as bt
warnings.simplefilter("ignore")
g = bt.Graph(reclaim=False)
{setup}
in_use = int(re.search(r"VmSize:\\s+(\\d+)", open("/proc/self/status").read()).group(1)) << 10
length = len(g)
results = []
for megabytes in (1, 2, 4, 8, 16, 32, 64):
    resource.setrlimit(resource.RLIMIT_AS, (in_use + (megabytes << 20), resource.RLIM_INFINITY))
    try:
        made = {call}
        results.append("done")
    except MemoryError:
        results.append("refused")
    made = None
    resource.setrlimit(resource.RLIMIT_AS, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    x = g.value(2.0)
    (x * x).backward()
    assert x.grad == 4.0
print(*results)
"""
    done = subprocess.run([sys.executable, "-c", check], capture_output=True, encoding="utf-8", timeout=300)
    assert done.returncode == 0, f"exit {done.returncode}: {done.stdout} {done.stderr[-1500:]}"
    assert done.stdout.split()[0] == "refused", done.stdout


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="limits of the address space are Linux's")
@pytest.mark.parametrize("megabytes", [0, 2, 20, 50, 70, 100, 200, 300, 400, 450, 600])
def test_threads_that_have_no_memory_are_not_started(megabytes):
    """200 stacks take 400 MB, and the C library ends a process if a thread has no memory for its thread-local
    variables."""
    check = f"""
import re, resource
import burtorch as bt
x = bt.Value(2.0)
in_use = int(re.search(r"VmSize:\\s+(\\d+)", open("/proc/self/status").read()).group(1)) << 10
resource.setrlimit(resource.RLIMIT_AS, (in_use + ({megabytes} << 20), resource.RLIM_INFINITY))
try:
    made = bt.parallel(lambda k: (x * k) ** 2, range(200), threads=200)
    assert [y.data for y in made] == [(2.0 * k) ** 2 for k in range(200)]
except MemoryError:
    pass
resource.setrlimit(resource.RLIMIT_AS, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
made = bt.parallel(lambda k: (x * k) ** 2, range(200), threads=200)
made[3].backward()
assert x.grad == 36.0
"""
    done = subprocess.run([sys.executable, "-c", check], capture_output=True, encoding="utf-8", timeout=120)
    assert (done.returncode, done.stderr) == (0, "")
