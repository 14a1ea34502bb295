"""One launch: a separate process runs one program of one experiment and prints its measurements as JSON.

A job is a dict. ``family`` is a function below; "graph" and "model" take ``program`` (its name), ``iterations``,
``budget`` (seconds), and ``graph`` or ``problem``. The answer is checked before anything is timed. Initialisation is
from here to the first step done, without the check: imports, reading the problem, building, compiling.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from time import perf_counter
from typing import Any

from . import hold_to_one_thread
from .measure import keep_to_one_core, loop_time, memory, note_private, step_times

TOLERANCE = 1e-5


def main(job: dict[str, Any]) -> None:
    """Runs the job; libraries that print go to stderr."""
    out = os.dup(1)
    os.dup2(2, 1)
    keep_to_one_core()
    hold_to_one_thread()
    result = FAMILIES[job["family"]](job)
    result["memory"] = memory()
    with os.fdopen(out, "w") as stream:
        json.dump(result, stream)
    sys.stdout.flush()
    os._exit(0)  # some frameworks take a second to exit, or fail there


def bare(job: dict[str, Any]) -> dict[str, Any]:
    """Imports a module and does nothing else."""
    start = perf_counter()
    if job["program"]:
        __import__(job["program"])
    return {"init": perf_counter() - start}


def graph(job: dict[str, Any]) -> dict[str, Any]:
    """A small graph, run many times."""
    name, start = job["program"], perf_counter()
    if name.startswith("burtorch"):
        from .burtorch_programs import graph_loop

        loop: Callable[[int], Any] = graph_loop(name, job["graph"])
    elif name == "python":
        from .graphs import FLOATS_BY_HAND, is_right

        loop = FLOATS_BY_HAND[job["graph"]]
        if not is_right(loop(1), job["graph"]):
            raise AssertionError("the gradient by hand is wrong")
    else:
        from .scalar_peers import program

        step, _ = program(name, job["graph"])

        def loop(n: int) -> None:
            for _ in range(n):
                step()

    ready = perf_counter() - start
    note_private()
    return {"init": ready, **loop_time(loop, job["iterations"], job["budget"])}


def model(job: dict[str, Any]) -> dict[str, Any]:
    """Steps of a model; the loss and gradient of its first batch must agree with those of the problem."""
    name, problem, start = job["program"], job["problem"], perf_counter()
    if name.startswith("burtorch"):
        from .burtorch_programs import Model

        peer: Any = Model(problem)
    else:
        from . import make
        from .cells import read_cell

        peer = make(name, read_cell(problem))
        if peer is None:
            raise ImportError(f"{name} has no program for the {problem['model']}")
    built = perf_counter() - start
    loss, grad = peer.loss_and_grad()
    agree(problem, float(loss), [float(x) for x in grad])
    start = perf_counter()
    peer.step()
    built += perf_counter() - start
    note_private()
    return {"init": built, **step_times(peer.step, job["iterations"], job["budget"])}


def agree(problem: dict[str, Any], loss: float, grad: list[float]) -> None:
    """Compares with the float64 results stored with the problem."""
    from array import array
    from math import fsum, sqrt

    with open(problem["answers"], "rb") as file:
        expected = array("d")
        expected.frombytes(file.read())
    if len(grad) != len(expected) - 1:
        raise AssertionError(f"expected {len(expected) - 1} partials, found {len(grad)}")
    off = abs(loss - expected[0]) / abs(expected[0])
    norm = sqrt(fsum(x * x for x in expected[1:]))
    far = sqrt(fsum((x - y) ** 2 for x, y in zip(grad, expected[1:]))) / norm
    if not (off <= TOLERANCE and far <= TOLERANCE):
        raise AssertionError(f"loss off by {off:.1e}, gradient by {far:.1e}: expected at most {TOLERANCE:.0e}")


def files(job: dict[str, Any]) -> dict[str, Any]:
    """Saving and loading."""
    from burtorch.cli import bench_io

    return bench_io.run(job["calls"], job["folder"], job["rivals"])


def chain(job: dict[str, Any]) -> dict[str, Any]:
    """A graph of ``nodes`` additions, built once and differentiated once; the derivative is the number of operands."""
    import burtorch

    n = job["nodes"]
    graph = burtorch.Graph(reclaim=False)
    with graph:
        x = burtorch.Value(1.0)
        y = x
        start = perf_counter()
        for _ in range(n):
            y = y + x
        built = perf_counter() - start
        start = perf_counter()
        y.backward()
        swept = perf_counter() - start
    if x.grad != n + 1:
        raise AssertionError(f"expected a derivative of {n + 1}, found {x.grad}")
    return {"build": built, "backward": swept}


def random_backward(job: dict[str, Any]) -> dict[str, Any]:
    """Gradients with inputs kept with probability ``p``, over the full gradient: time, and variance over its square."""
    import burtorch

    from .burtorch_programs import Model

    model, p = Model(job["problem"]), job["p"]
    full = model.loss_and_grad()[1]
    square, at = sum(x * x for x in full), 0
    batch = model.batches[0]

    def step() -> Any:
        nonlocal at
        at += 1
        return model.oracle(*batch, random_backward=p, draw=burtorch.compress.Draw(0, at))

    variances = [step()[2] for _ in range(20)]
    plain = step_times(lambda: model.oracle(*batch), job["iterations"], job["budget"])["median"]
    random = step_times(step, job["iterations"], job["budget"])["median"]
    return {"plain": plain, "random": random, "variance": sum(variances) / len(variances) / square}


FAMILIES: dict[str, Callable[[dict[str, Any]], dict[str, Any]]] = {
    "bare": bare,
    "graph": graph,
    "model": model,
    "files": files,
    "chain": chain,
    "random": random_backward,
}
