"""``burtorch bench threads``: the gain of a second thread, and the cost of a branch.

Every answer is checked first: the same bits for any number of threads. Contenders alternate, so that other load
slows them equally; medians are over the rounds.

Cores of shared machines differ in speed from second to second. In each round one thread is therefore timed on one core,
then on the other, and two threads are compared with the mean of both rates; and two counting processes show how much a
second core of the machine yields in the same minutes.
"""

from __future__ import annotations

import hashlib
import json
import os
import random
import subprocess
import sys
from array import array
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from statistics import harmonic_mean, median
from time import perf_counter
from typing import Any

import burtorch as bt

SAMPLES = 64
ROWS = 100_000
DIGEST_THREADS = (1, 2, 8, 64)
COUNTING_STEPS = 200_000
# The program of the other process: it counts once for each line that it receives.
COUNTING = """
import sys
from burtorch.cli.bench_threads import count
for line in sys.stdin:
    print(count(int(line)), flush=True)
"""

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
    with _counting() as counting:
        record["machine"] = _compare(counting, rounds)
    record["branch"] = _branch_node(rounds)
    if as_json:
        print(json.dumps(record, indent=1))
        return 0
    print(f"burtorch {record['burtorch']} ({record['cpu_level']}): {rounds} rounds, contenders alternating")
    head = f"{'1 thread':>10}{'2 threads':>11}{'speed-up':>10}{'(quartiles)':>16}"
    print(f"\n{'ms, median':<34}{head}   SHA-256 over {runs} runs")
    for name, row in record["jobs"].items():
        print(f"{name:<34}{_timed(row)}   {row['sha256'][:16]}")
    print(f"{'a counting loop, in processes':<34}{_timed(record['machine'])}   the yield of a second core here")
    branch = record["branch"]
    print(f"\nns per operator from Python: {branch['plain']:.1f} plain, {branch['branch']:.1f} in a branch")
    return 0


def _timed(row: dict[str, Any]) -> str:
    one, two = row["ms"]
    low, high = row["quartiles"]
    return f"{one:>10.3f}{two:>11.3f}{row['speed_up']:>10.2f}{f'({low:.2f} to {high:.2f})':>16}"


def _compare(job: Job, rounds: int) -> dict[str, Any]:
    """Median times on one and on two threads, and the median of their ratios."""
    job(-2)  # its threads may use any core
    times = [_one_and_two(job) for _ in range(rounds)]
    ratios = sorted(one / two for one, two in times)
    return {
        "ms": [1e3 * median(column) for column in zip(*times)],
        "speed_up": median(ratios),
        "quartiles": [ratios[round(share * (rounds - 1))] for share in (0.25, 0.75)],
    }


def _one_and_two(job: Job) -> tuple[float, float]:
    """Seconds on one thread, at the mean rate of two cores, and on two; each timed call follows one of its kind."""
    alone = []
    cores: list[int | None] = [*_two_cores()] or [None]
    for core in cores:
        with _on(core):
            alone.append(_seconds(job, 1))
    return harmonic_mean(alone), _seconds(job, 2)


def _seconds(job: Job, threads: int) -> float:
    job(-threads)
    start = perf_counter()
    job(-threads)
    return perf_counter() - start


def _two_cores() -> list[int]:
    """Two of the cores that this process may use, if there are two; none if threads cannot be pinned."""
    try:
        return sorted(os.sched_getaffinity(0))[:2]
    except AttributeError:
        return []


@contextmanager
def _on(core: int | None) -> Iterator[None]:
    """Pin only this thread to one core."""
    if core is None:
        yield
        return
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {core})
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


@contextmanager
def _counting() -> Iterator[Job]:
    """A job that needs only a core: this process counts, or it and another one count half as far each."""
    cores = _two_cores()
    command = [sys.executable, "-c", COUNTING]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1) as other:
        told, answers = other.stdin, other.stdout
        if told is None or answers is None:
            raise RuntimeError("the other process has no pipes")
        if len(cores) == 2:
            os.sched_setaffinity(other.pid, cores[1:])

        def job(threads: int) -> None:
            if abs(threads) == 1:
                count(COUNTING_STEPS)
                return
            half = COUNTING_STEPS // 2
            with _on(cores[0] if cores else None):
                print(half, file=told)
                total = count(half)
                if int(answers.readline()) != total:
                    raise RuntimeError("the counts of two processes differ")

        yield job


def count(steps: int) -> int:
    """The sum of squares below ``steps``."""
    total = 0
    for k in range(steps):
        total += k * k
    return total


def _branch_node(rounds: int) -> dict[str, float]:
    """The cost of an operator on a graph and in a branch, in nanoseconds."""
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
    """The timed jobs. A job takes the number of threads; a negative number requests no digest."""
    paper = bt.nn.GPT(bt.Parameters(seed=0))
    wide = bt.nn.GPT(bt.Parameters(seed=0), context=32, width=96)
    return {
        f"build {SAMPLES} losses of the GPT": _building(paper),
        f"build {SAMPLES} losses of a wider one": _building(wide),
        f"oracle of the GPT, b={SAMPLES}": _oracle(paper),
        f"map a function over {ROWS:,} rows": _map(),
    }


def _building(model: bt.nn.GPT) -> Job:
    """One graph of the losses of many samples: one native call for each, which releases the GIL."""
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
    """Samples of random symbols, and the targets that follow each."""
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
