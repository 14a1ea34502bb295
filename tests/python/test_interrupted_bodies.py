"""An interrupt in a body of a traced function or loop ends the call: nothing traces or runs the body again."""

from __future__ import annotations

import asyncio

import pytest

import burtorch as bt

np = pytest.importorskip("numpy")

FINAL = [KeyboardInterrupt, SystemExit, GeneratorExit, MemoryError, asyncio.CancelledError]


class Failing:
    """A step of a loop that raises at its n-th call."""

    def __init__(self, error, n):
        self.error, self.n, self.calls = error, n, 0

    def __call__(self, c, v=1.0):
        self.calls += 1
        if self.calls == self.n:
            raise self.error
        return c * 0.5 + v


LOOPS = {
    "scan": lambda step, x: bt.scan(lambda c, v: (step(c, v), None), 0.0, x)[0],
    "while_loop": lambda step, x: bt.while_loop(lambda c: c < 1.5, lambda c: step(c), x[0]),
    "condition": lambda step, x: bt.while_loop(lambda c: step(c) < 1.5, lambda c: c * 0.9, x[0]),
    "fori_loop": lambda step, x: bt.fori_loop(0, 3, lambda k, c: step(c), x[0]),
    "cond": lambda step, x: bt.cond(x[0] > 0.0, lambda a: step(a), lambda a: a, x[0]),
    "checkpoint": lambda step, x: bt.checkpoint(lambda a: step(a))(x[0]),
    "none": lambda step, x: step(x[0]),
}
ARGUMENTS = {
    "Vector": lambda: bt.Vector([1.0, 2.0]),
    "Values": lambda: [bt.Value(1.0), bt.Value(2.0)],
    "Array": lambda: bt.array([1.0, 2.0]),
    "array": lambda: np.array([1.0, 2.0]),
    "list": lambda: [1.0, 2.0],
}


@pytest.mark.parametrize("error", FINAL)
@pytest.mark.parametrize("loop", LOOPS)
@pytest.mark.parametrize("argument", ARGUMENTS)
def test_interrupts_of_bodies_are_passed_on(argument, loop, error):
    for n in (1, 2):
        step = Failing(error, n)
        f = bt.function(lambda x, step=step: LOOPS[loop](step, x))
        try:
            f(ARGUMENTS[argument]())
        except error:
            assert step.calls == n
        except Exception as other:  # a form of argument that this loop does not take
            assert step.calls < n, other  # noqa: PT017
        else:
            assert step.calls < n


@pytest.mark.parametrize("error", FINAL)
def test_interrupts_of_oracles_and_transforms_are_passed_on(error):
    params = bt.Parameters(dtype="float64")
    w = params.tensor(2, init=0.5)
    x = np.ones((3, 2))
    for call in (
        lambda step: bt.Oracle(lambda x: step((x * w).sum()), params=params)(x),
        lambda step: bt.Oracle(lambda x: step((x * w).sum()), params=params).losses(x),
        lambda step: bt.grad(lambda x: step(x.sum()))(x),
        lambda step: bt.vmap(lambda x: step(x.sum()))(x),
        lambda step: bt.function(lambda x: step(x[0])).map(x),
        lambda step: bt.check_grads(bt.function(lambda x: step(x.sum())), (x[0],)),
    ):
        step = Failing(error, 1)
        with pytest.raises(error):
            call(step)
        assert step.calls == 1
