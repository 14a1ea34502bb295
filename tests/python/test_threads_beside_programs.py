"""Long array programs let other Python threads run, and end on their request."""

from __future__ import annotations

import threading
import time

import numpy as np
import pytest

import burtorch as bt

LONG = 10**9


def endless(x):
    """Far too many steps for a test, each of them short."""
    return bt.while_loop(lambda c: c < 1e300, lambda c: c * x, x, max_steps=LONG)


def calls():
    params = bt.Parameters(dtype="float64")
    w = params.tensor(1, init=1.0)
    f = bt.function(endless)
    x, y = np.ones((2, 1)), np.zeros(2)
    oracle = bt.Oracle(lambda x, y: endless(x[0]) * w[0] + y, params=params)
    many = bt.Oracle(lambda x, y: bt.fori_loop(0, LONG, lambda k, c: c * x[0], w[0]) + y, params=params)
    return {
        "map": lambda stop: f.map(np.ones(3), stop=stop),
        "map_value_and_grad": lambda stop: f.map_value_and_grad(np.ones(3), stop=stop),
        "oracle": lambda stop: oracle(x, y, stop=stop),
        "oracle.loss": lambda stop: oracle.loss(x, y, stop=stop),
        "oracle.losses": lambda stop: oracle.losses(x, y, stop=stop),
        "oracle.grad": lambda stop: oracle.grad(x, y, stop=stop),
        "oracle.per_sample_grads": lambda stop: oracle.per_sample_grads(x, y, stop=stop),
        "oracle of a counted loop": lambda stop: many.loss(x, y, stop=stop),
    }


@pytest.mark.parametrize("name", calls())
def test_a_stop_that_another_thread_sets_ends_a_program(name):
    call, stop = calls()[name], bt.Stop()
    timer = threading.Timer(0.05, stop.set)
    timer.start()
    began = time.monotonic()
    with pytest.raises(bt.StoppedError):
        call(stop)
    assert time.monotonic() - began < 10.0
    timer.join()


def long_calls():
    x = np.random.default_rng(0).normal(size=(400, 400))
    product = bt.function(lambda x: bt.fori_loop(0, 30, lambda k, y: bt.tanh(y @ x), x))
    scalars = bt.function(lambda x: bt.fori_loop(0, 3 * 10**6, lambda k, y: bt.sin(y) * x, x))
    gradient = bt.grad(lambda x: bt.fori_loop(0, 30, lambda k, y: bt.tanh(y @ x), x).sum())
    rows = bt.vmap(lambda x: bt.fori_loop(0, 20_000, lambda k, y: bt.sin(y) * x, x))
    return {
        "products": lambda: product(x),
        "scalars": lambda: scalars(0.5),
        "gradient": lambda: gradient(x),
        "rows": lambda: rows(x[0]),
    }


@pytest.mark.parametrize("name", long_calls())
def test_other_threads_run_meanwhile(name):
    call = long_calls()[name]
    expected = call()
    ticks, ended = [], threading.Event()

    def tick():
        while not ended.is_set():
            ticks.append(time.monotonic())
            time.sleep(0.001)

    thread = threading.Thread(target=tick)
    thread.start()
    began = time.monotonic()
    found = call()
    took = time.monotonic() - began
    ended.set()
    thread.join()
    assert np.array_equal(found, expected)
    within = [t for t in ticks if began < t < began + took]
    # One every 50 ms at least: a thread that asks for the interpreter gets it after some milliseconds.
    assert took < 0.1 or len(within) >= took / 0.05


def test_two_threads_may_call_one_function():
    f = bt.function(lambda x: bt.fori_loop(0, 20_000, lambda k, y: bt.sin(y) + x, x).sum())
    x = np.linspace(0.0, 1.0, 50)
    expected = [f(x + k) for k in range(4)]
    found = [[] for _ in range(4)]

    def work(k):
        for _ in range(3):
            found[k].append(f(x + k))

    threads = [threading.Thread(target=work, args=(k,)) for k in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [[value] * 3 for value in expected]
