"""Long calls of oracles and finite sums, and training, take a token and a deadline: each ends, or it is whole."""

from __future__ import annotations

import random
import threading
import time
from typing import Any

import numpy as np
import pytest

import burtorch as bt
from burtorch.cli import trainer
from burtorch.text import WordContexts

MOMENTS = 12


def same(a: Any, b: Any) -> bool:
    """Whether two results are equal, bit by bit."""
    if isinstance(a, tuple | list) and not hasattr(a, "numbers"):
        return len(a) == len(b) and all(same(x, y) for x, y in zip(a, b, strict=True))
    if isinstance(a, float | int | bt.compress.Message):
        return bool(a == b)
    return np.asarray(a).tobytes() == np.asarray(b).tobytes()


def oracle_of(kind):
    """An oracle, and a batch of it."""
    params = bt.Parameters(dtype="float64", seed=1)
    rng = np.random.default_rng(2)
    if kind == "model":
        model = bt.nn.CharMLP(params, vocab=7, context=4, embedding=5, hidden=40)
        return bt.Oracle(model), rng.integers(7, size=(90, 4)), rng.integers(7, size=90)
    w, v = params.tensor((30, 20), init="normal"), params.tensor(30, init="normal")

    def loss(x, y):
        return ((w @ x).tanh() * v).sum() * y

    def untraced(x, y):
        # What reads the parameters' number cannot be traced.
        return sum((bt.inner_product(w[k], x).tanh() for k in range(30)), 0.0 * params.n) * y

    call, lanes = (loss, None) if kind == "traced" else (untraced, 4)
    return bt.Oracle(call, params=params, lanes=lanes), rng.normal(size=(60, 20)), rng.normal(size=60)


def parts(oracle, x, y, **options):
    found: list[Any] = []
    loss = oracle.stream(x, y, lambda r, g: found.append((r.start, np.array(g))), **options)
    return [loss, *found]


def visited(oracle, x, y, **options):
    found: list[Any] = []
    oracle.per_sample(x, y, lambda k, loss, grad: found.append((k, loss, np.array(grad))), **options)
    return found


CALLS = {
    "grad": lambda oracle, x, y, **more: np.array(oracle.grad(x, y, **more)),
    "some": lambda oracle, x, y, **more: oracle.grad(x, y, wanted=range(3, 50), **more),
    "loss": lambda oracle, x, y, **more: oracle.loss(x, y, **more),
    "losses": lambda oracle, x, y, **more: oracle.losses(x, y, **more),
    "stream": parts,
    "passed on": lambda *args, **more: parts(*args, keep=False, **more),
    "on a thread": lambda *args, **more: parts(*args, on_thread=True, **more),
    "per_sample": visited,
    "rows": lambda oracle, x, y, **more: oracle.per_sample_grads(x, y, **more),
    "messages": lambda oracle, x, y, **more: oracle.per_sample_grads(x, y, compress=bt.compress.TopK(3), **more),
    "norms": lambda oracle, x, y, **more: oracle.per_sample_grad_norms(x, y, **more),
    "largest": lambda oracle, x, y, **more: oracle(x, y, compress=bt.compress.TopK(5), **more),
    "chosen": lambda oracle, x, y, **more: oracle(
        x, y, compress=bt.compress.RandK(5), draw=bt.compress.Draw(seed=1), **more
    ),
    "natural": lambda oracle, x, y, **more: oracle(
        x, y, compress=bt.compress.Natural(), draw=bt.compress.Draw(seed=1), **more
    ),
    "random": lambda oracle, x, y, **more: oracle(x, y, random_backward=0.5, draw=bt.compress.Draw(seed=1), **more)[
        ::2
    ],
}
#: What overwrites the gradients of the parameters.
OVERWRITE = ("grad", "stream", "on a thread", "random")


@pytest.mark.parametrize("kind", ["model", "traced", "untraced"])
@pytest.mark.parametrize("call", CALLS)
def test_a_call_ends_or_is_whole(call, kind):
    if call == "random" and kind != "model":
        pytest.skip("for built-in models")
    oracle, x, y = oracle_of(kind)
    run = CALLS[call]
    expected = run(oracle, x, y)
    began = time.perf_counter()
    assert same(run(oracle, x, y), expected)
    took = time.perf_counter() - began
    stop, draw, ended = bt.Stop(), random.Random(3), 0
    grads = oracle.params.grads
    for moment in range(MOMENTS):
        grads[:] = 0.5
        try:
            found = run(oracle, x, y, stop=stop, deadline=draw.uniform(0.0, took) if moment else 0.0)
        except bt.StoppedError:
            ended += 1
            if call in OVERWRITE:
                assert not np.array(grads).any()
            elif call not in ("per_sample", "rows", "norms"):
                assert set(grads) == {0.5}
            continue
        assert same(found, expected)
    assert ended
    stop.set()
    with pytest.raises(bt.StoppedError):
        run(oracle, x, y, stop=stop)
    stop.clear()
    assert same(run(oracle, x, y, stop=stop, deadline=3600.0), expected)
    with pytest.raises(ValueError, match="deadline must be at least 0"):
        run(oracle, x, y, deadline=-1.0)
    with pytest.raises(TypeError, match="stop"):
        run(oracle, x, y, stop=3)


@pytest.mark.parametrize("kind", ["model", "traced", "untraced"])
def test_a_gradient_that_is_left_is_whole_after_the_next_call(kind):
    oracle, x, y = oracle_of(kind)
    loss, grad = oracle(x, y)
    full = np.array(grad)
    stop = bt.Stop()
    stop.set()
    for more in ({}, {"wanted": range(3, 9)}, {"out": np.empty_like(full)}):
        assert oracle(x, y, stop=stop, on_stop="leave", **more) is None
    found, again = oracle(x, y, deadline=3600.0, on_stop="leave")
    assert found == loss
    assert np.array(again).tobytes() == full.tobytes()


def test_a_step_of_a_method_is_taken_or_not():
    data, targets = bt.opt.make_logistic(3000, 40, seed=1)
    problem = bt.opt.logistic_regression(data, targets, l2=0.1)
    draw = random.Random(1)
    top = bt.compress.TopK(5)
    sgd, ef21 = lambda p: bt.opt.SGD(p, step=0.01, seed=4), lambda p: bt.opt.EF21(p, clients=10, compressor=top)
    for make in (bt.opt.GD, sgd, ef21):
        method, again = make(problem), make(problem)
        taken = 0
        for moment in range(60):
            before = method.x
            try:
                method.step(deadline=draw.uniform(0.0, 2e-3) if moment else 0.0)
                taken += 1
            except bt.StoppedError:
                assert np.array_equal(method.x, before)
        assert taken < 60
        for _ in range(taken):
            again.step()
        assert np.array_equal(method.x, again.x)
        stop = bt.Stop()
        stop.set()
        with pytest.raises(bt.StoppedError):
            method.step(stop=stop)
        assert np.array_equal(method.x, again.x)


def test_a_pass_over_a_finite_sum_ends_or_is_whole():
    data, targets = bt.opt.make_logistic(5000, 40, seed=1)
    problem = bt.opt.logistic_regression(data, targets)
    x = np.full(40, 0.1)
    some = np.arange(50)
    calls = (
        lambda **more: problem.loss(x, **more),
        lambda **more: problem.grad(x, **more),
        lambda **more: problem.gradients(x, some, **more),
    )
    for call in calls:
        expected = call()
        assert same(call(deadline=60.0), expected)
        with pytest.raises(bt.StoppedError):
            call(deadline=0.0)
        assert same(call(stop=bt.Stop()), expected)
    out = np.full(40, 7.0)
    with pytest.raises(bt.StoppedError):
        problem.grad(x, out=out, deadline=0.0)
    assert set(out) == {7.0}


def training():
    words = ["emma", "olivia", "ava", "isabella", "sophia", "mia"]
    data = WordContexts(words, context=3, holdout=0.0)
    params = bt.Parameters(dtype="float64", seed=1)
    model = bt.nn.CharMLP(params, vocab=len(data.vocabulary), context=3, embedding=3, hidden=8)
    options = {"batch": 5, "steps": 40, "lr": 0.1, "final_lr_fraction": 0.1, "watch": lambda course: None}
    return params, bt.Oracle(model), bt.optim.SGD(params, lr=0.1), data, options


@pytest.mark.parametrize("last", [0, 27, 28, 29])
def test_training_that_a_token_ends_goes_on_as_if_it_had_not(last):
    """Also where the rate changes, after 28 steps; a step that is not taken has its batch still ahead."""
    params, oracle, optimizer, data, options = training()
    course = trainer.train(oracle, optimizer, data, **options)
    assert (course.n_steps, course.interrupted) == (40, False)
    expected = np.array(params.values)

    params, oracle, optimizer, data, options = training()
    stop = bt.Stop()
    watch = lambda course: stop.set() if course.n_steps == last else None  # noqa: E731
    if last == 0:
        stop.set()
    course = trainer.train(oracle, optimizer, data, **(options | {"watch": watch}), stop=stop)
    assert (course.n_steps, course.interrupted, course.between_steps) == (last, True, True)
    stop.clear()

    class Stopping:
        """An oracle whose first call is stopped from another thread."""

        def __call__(self, *batch, stop):
            thread = threading.Thread(target=stop.set)
            thread.start()
            thread.join()
            return oracle(*batch, stop=stop)

    course = trainer.train(Stopping(), optimizer, data, **options, course=course, stop=stop)
    assert (course.n_steps, course.interrupted, course.between_steps) == (last, True, True)
    stop.clear()
    course.interrupted = False
    course = trainer.train(oracle, optimizer, data, **options, course=course, stop=stop)
    assert (course.n_steps, course.interrupted) == (40, False)
    assert np.array(params.values).tobytes() == expected.tobytes()
