"""Predicted and measured times of gradients of sets, and the latency of stops from another thread.

    python bench_backward.py [--sets 200] [--stops 1000] [--rounds 25]

For random sets of each model (ranges, and masks of 1, 10, 50 and 95 %), counts how many take within 25 % of
`oracle.cost(S)`; first their bits are compared with those of the gradient. The speed of a shared machine varies, so
there are several passes over all sets, each with a new oracle that measures its costs: the least prediction is compared
with the least time of a call, and then the predictions of each pass with its own times.

Stops are set by a Python thread while Rust computes, after a random time: percentiles of the time from then to the
return. The cost of a token that is never set is the median ratio of the times of two calls, with and without a token.
Tokens set by a Rust thread: `cargo bench -p burtorch-core --bench stops`; times of sets: `--bench subsets`.
"""

from __future__ import annotations

import argparse
import random
import statistics
import threading
import time
from collections.abc import Callable
from typing import Any

import numpy as np

import burtorch as bt

PASSES = 5


def timed(call: Callable[[], Any]) -> float:
    """Microseconds of a call."""
    start = time.perf_counter()
    call()
    return (time.perf_counter() - start) * 1e6


def models() -> dict[str, tuple[Any, Any, Any]]:
    """Each model with a sample."""
    rng = np.random.default_rng(0)
    found: dict[str, tuple[Any, Any, Any]] = {}
    for hidden in (64, 1024):
        model = bt.nn.CharMLP(bt.Parameters(seed=1), vocab=27, context=16, embedding=64, hidden=hidden)
        found[f"CharMLP e={hidden}"] = model, rng.integers(0, 27, (1, 16)), rng.integers(0, 27, 1)
    gpt = bt.nn.GPT(bt.Parameters(seed=1))
    found["GPT"] = gpt, rng.integers(0, 65, (1, 8)), rng.integers(0, 65, (1, 8))
    return found


def any_set(d: int, rng: np.random.Generator) -> Any:
    """Indices, ascending."""
    kind = rng.integers(5)
    if kind == 0:
        start = rng.integers(d)
        return np.arange(start, rng.integers(start + 1, d + 1))
    mask = rng.random(d) < (0.01, 0.1, 0.5, 0.95)[kind - 1]
    mask[rng.integers(d)] = True
    return np.flatnonzero(mask)


def predictions(name: str, model: Any, batch: tuple[Any, Any], sets: int, rounds: int) -> None:
    """Prints how many predictions are correct."""
    rng = np.random.default_rng(1)
    d = model.params.n
    oracle = bt.Oracle(model)
    full, room = np.array(oracle.grad(*batch)), np.empty(d, "float32")
    chosen = [any_set(d, rng) for _ in range(sets)]
    for indices in chosen:
        assert np.array_equal(oracle.grad(*batch, wanted=indices), full[indices])
    predicted, measured = np.empty((PASSES, sets)), np.empty((PASSES, sets))
    bounds = dict.fromkeys(("call", "loss", "sweep", "numbers", "ranges"), 0)
    for times, found in zip(predicted, measured, strict=True):
        oracle = bt.Oracle(model)
        for k, indices in enumerate(chosen):
            wanted, out = oracle.subset(indices), room[: len(indices)]
            cost = oracle.cost(wanted, *batch)
            times[k] = cost["seconds"] * 1e6
            bounds[cost["bound"]] += 1
            found[k] = min(
                timed(lambda f=oracle.grad, w=wanted, o=out: f(*batch, wanted=w, out=o)) for _ in range(rounds)
            )
    least = np.sort(predicted.min(axis=0) / measured.min(axis=0))
    each = np.sort((predicted / measured).ravel())
    for what, ratios in (("least of all passes", least), ("each pass by itself", each)):
        good = ((ratios >= 0.75) & (ratios <= 1.25)).sum()
        print(
            f"{name}, {what}: {good} of {ratios.size} predictions within 25 %; predicted to measured from "
            f"{ratios[0]:.2f} to {ratios[-1]:.2f}, median {np.median(ratios):.2f}; bounds {bounds}"
        )


def stopped(name: str, call: Callable[..., Any], stops: int) -> None:
    """Prints the latency of stops, and the cost of watching."""
    stop, draw, latencies = bt.Stop(), random.Random(1), []
    call(None)
    took = timed(lambda: call(None)) * 1e-6
    for _ in range(stops):
        when: list[float] = []

        def later(delay: float = draw.uniform(0, took), when: list[float] = when) -> None:
            time.sleep(delay)
            when.append(time.perf_counter())
            stop.set()

        thread = threading.Thread(target=later)
        thread.start()
        ended = None
        try:
            call(stop)
        except bt.StoppedError:
            ended = time.perf_counter()
        thread.join()
        if ended is not None:
            latencies.append((ended - when[0]) * 1e6)
        stop.clear()
    ratios = []
    for _ in range(101):
        without = timed(lambda: call(None))
        ratios.append(timed(lambda: call(stop)) / without)
    if latencies:
        latencies.sort()
        at = [latencies[round((len(latencies) - 1) * share)] for share in (0.5, 0.99, 1.0)]
        print(
            f"{name}: a call takes {took * 1e3:.1f} ms; {len(latencies)} of {stops} ended early, "
            f"median {at[0]:.0f} us, 99th percentile {at[1]:.0f} us, most {at[2]:.0f} us; "
            f"watching takes {statistics.median(ratios):.4f} of the time"
        )


def main() -> None:
    """Runs everything."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sets", type=int, default=200)
    parser.add_argument("--stops", type=int, default=1000)
    parser.add_argument("--rounds", type=int, default=25)
    options = parser.parse_args()
    for name, (model, *batch) in models().items():
        predictions(name, model, (batch[0], batch[1]), options.sets, options.rounds)

    model = models()["CharMLP e=64"][0]
    rng = np.random.default_rng(2)
    xs, ys = rng.integers(0, 27, (4096, 16)).astype("int32"), rng.integers(0, 27, 4096).astype("int32")
    oracle = bt.Oracle(model)
    stopped("oracle, 4096 samples", lambda stop: oracle(xs, ys, stop=stop), options.stops)

    w = bt.Parameters(dtype="float64", seed=1).tensor((64, 64), init="normal")
    hidden = bt.concat(*[bt.Value(0.01 * k) for k in range(64)])
    for _ in range(40):
        hidden = bt.concat(*[(bt.inner_product(w[k], hidden) * 0.1).tanh() for k in range(64)])
    root = hidden.sum()
    for k in range(20_000):
        root = root * 0.999 + hidden[k % 64].sin()
    stopped("backward of a Value", lambda stop: root.backward(stop=stop), options.stops)

    def slow(x: Any) -> Any:
        for _ in range(100):
            x = (x * 1.01).sin()
        return x

    f, rows = bt.function(slow), np.linspace(0.0, 1.0, 50_000)
    stopped("f.map, 50,000 rows", lambda stop: f.map(rows, stop=stop), options.stops)


if __name__ == "__main__":
    main()
