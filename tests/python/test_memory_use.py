"""bt.memory: bytes by kind of a training step."""

import os
import subprocess
import sys

import pytest

import burtorch as bt

KINDS = ["trainable", "frozen", "activations", "inputs_and_outputs", "error_signal", "optimizer_state"]


def batch(n):
    return [[(k + j) % 27 for j in range(16)] for k in range(n)], [k % 27 for k in range(n)]


def test_kinds_add_up_and_nothing_moves():
    params = bt.Parameters(seed=1)
    model = bt.nn.CharMLP(params, hidden=8)
    model.embedding.freeze()
    adam = bt.optim.AdamW(params)
    bt.Oracle(model)(*batch(3))
    adam.step()
    values, grads = list(params.values), list(params.grads)
    use = bt.memory(model, adam, batch(64))
    assert (list(params.values), list(params.grads)) == (values, grads)
    assert list(use.as_dict()) == KINDS
    assert use.total == sum(use.as_dict().values())
    assert use.frozen == 4 * 27 * 64
    assert use.trainable == 4 * (len(params) - 27 * 64)
    assert use.optimizer_state >= 2 * use.trainable
    # 64 samples with 16 embeddings of 64 numbers, twice 8 hidden units, 27 logits and 27 probabilities.
    assert use.activations >= 4 * 64 * (1024 + 16 + 54)
    assert use.error_signal >= use.trainable + 4 * 64 * 1024
    assert use.inputs_and_outputs >= 4 * 64 * 17
    assert use.process is None or use.total < use.process
    assert "total=" in repr(use)


def test_memory_does_not_grow_with_the_batch():
    for make in (lambda p: bt.nn.CharMLP(p, hidden=8), lambda p: bt.nn.GPT(p, vocab=27, context=16)):
        model = make(bt.Parameters())
        x, y = batch(64)
        large_x, large_y = batch(4096)
        if isinstance(model, bt.nn.GPT):
            y, large_y = x, large_x
        small, large = (bt.memory(bt.Oracle(model), None, b) for b in ((x, y), (large_x, large_y)))
        assert large.activations <= small.activations + 4096  # the log of rewinds
        # The gradient of a chunk of samples is added to that of earlier chunks.
        assert large.error_signal <= small.error_signal + small.trainable + 4096
        assert large.optimizer_state == 0


def test_oracles_and_callables_are_counted():
    params = bt.Parameters(dtype="float64")
    w = params.tensor((2, 3))
    oracle = bt.Oracle(lambda x, y: (w @ x).sum() * y, params=params)
    before = bt.memory(oracle)
    after = bt.memory(oracle, None, ([[1.0, 2.0, 3.0]] * 9, [1.0] * 9))
    assert after.activations > before.activations
    assert after.trainable == 48
    with pytest.raises(TypeError):
        bt.memory(3)
    with pytest.raises(ValueError):
        bt.memory(oracle, None, ([], []))


PEAK = """
import burtorch as bt
{code}
peak = next(line for line in open("/proc/self/status") if line.startswith("VmPeak"))
print(int(peak.split()[1]) / 1024)
"""
TRAIN = """
params = bt.Parameters()
model = {model}
oracle, sgd = bt.Oracle(model), bt.optim.SGD(params, lr=0.1)
rows = [[k % 27] * 16 for k in range(64)]
for _ in range(3):
    oracle(rows, {targets})
    sgd.step()
"""


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="the peak is read from /proc")
@pytest.mark.skipif(os.path.getsize(bt._core.__file__) > 50 << 20, reason="a build without optimisation is large")
@pytest.mark.parametrize(
    ("code", "most"),
    [
        ("", 50),
        ("bt.Parameters()", 60),
        (TRAIN.format(model="bt.nn.CharMLP(params, hidden=1024)", targets="[k % 27 for k in range(64)]"), 130),
        (TRAIN.format(model="bt.nn.GPT(params, vocab=27, context=16)", targets="rows"), 130),
    ],
    ids=["import", "Parameters", "CharMLP", "GPT"],
)
def test_peak_of_address_space(code, most):
    run = [sys.executable, "-c", PEAK.format(code=code)]
    found = float(subprocess.run(run, check=True, capture_output=True, text=True).stdout)
    assert found < most, f"{found:.0f} MiB"


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="the peak is read from /proc")
def test_recording_takes_no_memory_for_numbers():
    code = """
import numpy as np, burtorch as bt
def peak():
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) for line in status if line.startswith("VmHWM")) / 1024
def cost(c, p):
    return np.sum(np.min(np.sum(p * p, 1)[:, None] - 2.0 * (p @ c.T) + np.sum(c * c, 1), axis=1))
def direction(c, p):
    slope, bend = bt.jvp(lambda c: bt.grad(cost)(c, p), (c,), (np.ones(c.shape),))
    return slope / bend
c, p = np.ones((10, 16)), np.ones((100, 16))
bt.function(direction).trace(c, p)
c, p = np.ones((100, 16)), np.ones((20000, 16))
before = peak()
f = bt.function(direction)
f.trace(c, p)
traced = peak()
f(c, p)
print(traced - before, peak() - traced)
"""
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    traced, called = map(float, ran.stdout.split())
    # One matrix of distances is 16 MB.
    assert traced < 5
    assert called > 16


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="the peak is read from /proc")
def test_a_gradient_of_a_long_loop_keeps_little_more_than_its_carries():
    code = """
import numpy as np, burtorch as bt
def peak():
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) for line in status if line.startswith("VmHWM")) / 1024
def of(steps):
    def f(p):
        def step(state, _):
            x, v = state
            return (x + 0.01 * v, v - 0.01 * (p[1] * v + np.sin(x))), None
        (x, v), _ = bt.scan(step, (p[0], 0.0), None, length=steps)
        return x * x + v * v
    return bt.function(f)
p = np.array([1.0, 0.1])
of(3).value_and_grad(p)
before = peak()
for _ in range(2):
    f = of(100_000)
    f.value_and_grad(p), f.value_and_grad(p)
    print(peak() - before)
"""
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    first, second = map(float, ran.stdout.split())
    carried = 8 * 2 * 100_000 / 2**20
    assert first < 10 + carried
    # Not the carries of all calls; and the measure sees what is kept.
    assert second < 10 + 2 * carried
    assert first > carried
