"""``burtorch bench threads``: what a second thread buys, and what a branch costs.

Every answer is checked first: the same bits for any number of threads. Contenders take turns, so that a busy
machine slows them all alike; medians are over the rounds.
"""

from __future__ import annotations

import hashlib
import json
import random
from array import array
from collections.abc import Callable
from statistics import median
from time import perf_counter
from typing import Any

import burtorch as bt

SAMPLES = 64
ROWS = 100_000
DIGEST_THREADS = (1, 2, 8, 64)

Job = Callable[[int], Any]


def run(rounds: int, runs: int, as_json: bool) -> int:
    """Check and time everything; print a table or JSON. The exit code."""
    jobs = _jobs()
    record: dict[str, Any] = {
        "burtorch": bt.__version__,
        "cpu_level": bt.system.cpu_level(),
        "bench": "threads",
        "rounds": rounds,
        "runs": runs,
        "jobs": {},
    }
    for name, job in jobs.items():
        digests = {job(DIGEST_THREADS[k % len(DIGEST_THREADS)]) for k in range(runs)}
        if len(digests) != 1:
            print(f"burtorch bench: {name} differs between numbers of threads: {sorted(digests)}")
            return 1
        record["jobs"][name] = {"sha256": digests.pop(), **_compare(job, rounds)}
    record["branch"] = _branch_node(rounds)
    if as_json:
        print(json.dumps(record, indent=1))
        return 0
    print(f"burtorch {record['burtorch']} ({record['cpu_level']}): {rounds} rounds, contenders in turn")
    print(f"\n{'ms, median':<34}{'1 thread':>10}{'2 threads':>11}{'speed-up':>10}   SHA-256 over {runs} runs")
    for name, row in record["jobs"].items():
        one, two = row["ms"]
        print(f"{name:<34}{one:>10.3f}{two:>11.3f}{row['speed_up']:>10.2f}   {row['sha256'][:16]}")
    branch = record["branch"]
    print(f"\nns per operator from Python: {branch['plain']:.1f} plain, {branch['branch']:.1f} in a branch")
    return 0


def _compare(job: Job, rounds: int) -> dict[str, Any]:
    """Median times on one and on two threads, and the median of their ratios; what is timed follows one of its kind."""
    seconds: tuple[list[float], list[float]] = ([], [])
    for _ in range(rounds):
        for times, threads in zip(seconds, (1, 2)):
            job(-threads)
            start = perf_counter()
            job(-threads)
            times.append(perf_counter() - start)
    ratio = median(one / two for one, two in zip(*seconds))
    return {"ms": [1e3 * median(times) for times in seconds], "speed_up": ratio}


def _branch_node(rounds: int) -> dict[str, float]:
    """What an operator costs on a graph, and in a branch of one, in nanoseconds."""
    n = 20_000

    def chain(x: bt.Value) -> float:
        y = x
        start = perf_counter()
        for _ in range(n):
            y = y * x
        return 1e9 * (perf_counter() - start) / n

    plain, branched = [], []
    for _ in range(rounds):
        graph = bt.Graph(reclaim=False)
        with graph:
            plain.append(chain(bt.Value(0.5)))
        graph = bt.Graph(reclaim=False)
        (branch,) = graph.branches(1)
        with branch:
            branched.append(chain(bt.Value(0.5)))
        graph.join()
    return {"plain": median(plain), "branch": median(branched)}


def _jobs() -> dict[str, Job]:
    """What is timed. A job takes the number of threads; a negative one asks for no digest."""
    paper = bt.nn.GPT(bt.Parameters(seed=0))
    wide = bt.nn.GPT(bt.Parameters(seed=0), context=32, width=96)
    return {
        f"build {SAMPLES} losses of the GPT": _building(paper),
        f"build {SAMPLES} losses of a wider one": _building(wide),
        f"oracle of the GPT, b={SAMPLES}": _oracle(paper),
        f"map a function over {ROWS:,} rows": _map(),
    }


def _building(model: bt.nn.GPT) -> Job:
    """One graph of the losses of many samples: one native call for each, which releases the interpreter's lock."""
    xs, ys = _windows(model)
    graph = bt.Graph(dtype="float32")

    def build(threads: int) -> str:
        graph.clear()
        losses = bt.parallel(
            lambda k: bt.nn.sample_loss(model, xs[k], ys[k]), range(SAMPLES), graph=graph, threads=abs(threads)
        )
        if threads < 0:
            return ""
        total = bt.reduce_sum(losses)
        model.params.zero_grad()
        total.backward()
        return _digest([*(loss.data for loss in losses), *model.params.grads])

    return build


def _oracle(model: bt.nn.GPT) -> Job:
    """The gradient of a batch of 64."""
    xs, ys = _windows(model)
    windows, targets = _table(xs), _table(ys)
    oracles = {threads: bt.Oracle(model, threads=threads) for threads in DIGEST_THREADS}

    def gradient(threads: int) -> str:
        loss, grad = oracles[abs(threads)](windows, targets)
        return "" if threads < 0 else _digest([loss, *grad])

    return gradient


def _map() -> Job:
    """Values and gradients of a function of two numbers over rows."""
    draw = random.Random(0)
    f = bt.trace(lambda a, b: bt.log1p(bt.exp(a * b)) / (1.0 + a * a) - bt.tanh(b), 0.5, 0.25)
    a, b = (array("d", [draw.uniform(-2.0, 2.0) for _ in range(ROWS)]) for _ in range(2))

    def rows(threads: int) -> str:
        values, grads = f.map_value_and_grad(a, b, threads=abs(threads))
        return "" if threads < 0 else hashlib.sha256(b"".join(map(bytes, (values, *grads)))).hexdigest()

    return rows


def _windows(model: bt.nn.GPT) -> tuple[list[array[int]], list[array[int]]]:
    """Samples of random symbols, and what is to follow each."""
    draw = random.Random(0)

    def samples() -> list[array[int]]:
        return [array("i", [draw.randrange(model.vocab) for _ in range(model.context)]) for _ in range(SAMPLES)]

    return samples(), samples()


def _table(rows: list[array[int]]) -> Any:
    """The samples as one buffer of shape (b, n)."""
    flat = array("i", [symbol for row in rows for symbol in row])
    return memoryview(flat).cast("B").cast("i", (len(rows), len(rows[0])))


def _digest(numbers: list[float]) -> str:
    return hashlib.sha256(" ".join(map(float.hex, numbers)).encode()).hexdigest()
