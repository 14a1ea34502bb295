"""Times the derivatives of the suite beside JAX, PyTorch and CasADi, each answer checked against its reference first.

    python table.py [--only lse,gmm] [--rounds 7] [--cpu 0]

Every tool and cell first runs in a separate process, which reports the time of the first call (tracing or compiling)
and the peak memory above that of the input. Then all tools run in one process, in turns, on one core: minimum of the
rounds.
"""

import argparse
import gc
import json
import os
import subprocess
import sys
import time
from pathlib import Path

ONE_THREAD = {
    "XLA_FLAGS": "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1",
    **{"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"},
}
os.environ.update(ONE_THREAD)

import numpy as np  # noqa: E402

import evals  # noqa: E402
import inputs  # noqa: E402
import references  # noqa: E402
import rivals  # noqa: E402
import tool  # noqa: E402

CELLS = [
    ("hello", ()),
    *[("lse", (n,)) for n in (2500, 1280000)],
    *[("gmm", size) for size in ((2, 5), (10, 10), (32, 50), (64, 100))],
    *[("kmeans", size) for size in ((10, 1000, 8), (100, 10000, 16), (1000, 10000, 16))],
    *[("det", (n,)) for n in (8, 9)],
    *[("ba", (number,)) for number in (1, 14)],
    ("llsq", (16392,)),
    *[("ode", (100, steps)) for steps in (10000, 100000)],
    *[("lstm", (1, characters)) for characters in (1024, 8192)],
]
FUNCTION = {"hello": "double", "gmm": "jacobian", "kmeans": "dir", "ba": "jacobian", "lstm": "jacobian"}
VISIT_SECONDS = 0.05


def label(name, size):
    return f"{name} {', '.join(map(str, size))}".strip()


def finished(result):
    """The result after its computation has ended: JAX computes asynchronously."""
    if isinstance(result, dict):
        return {key: finished(part) for key, part in result.items()}
    if isinstance(result, tuple):
        return tuple(finished(part) for part in result)
    return np.asarray(result)


def check(name, expected, result):
    answer = getattr(tool.module(name), "answer", tool.plain)(finished(result))
    worst = references.distance(answer, expected)
    if not worst < 1e-6:
        raise SystemExit(f"{name}: {worst} away from the reference")


def peak_megabytes():
    """Linux separates the peak memory of a process from that of its parent; getrusage does not."""
    try:
        lines = Path("/proc/self/status").read_text().splitlines()
    except OSError:
        return float("nan")
    return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM")) / 1024


def first_call(maker, cell):
    """Prints the seconds of the first call and the peak megabytes of calls."""
    name, size = CELLS[cell]
    function = rivals.MAKERS[maker]()[name]
    given = inputs.draw(name, *size)
    arguments = tool.module(name).prepare(given)
    before = peak_megabytes()
    start = time.perf_counter()
    finished(function(*arguments))
    seconds = time.perf_counter() - start
    finished(function(*arguments))
    print(json.dumps([seconds, peak_megabytes() - before]))


def measured(maker, cell):
    ran = subprocess.run(
        [sys.executable, __file__, "--first", maker, str(cell)], capture_output=True, text=True, check=False
    )
    return json.loads(ran.stdout) if ran.returncode == 0 else None


def visit(function, arguments):
    count, start = 0, time.perf_counter()
    while count == 0 or time.perf_counter() - start < VISIT_SECONDS:
        finished(function(*arguments))
        count += 1
    return (time.perf_counter() - start) / count


def times(name, size, tools, rounds):
    """The minimum seconds of a call by tool."""
    given = inputs.draw(name, *size)
    arguments = tool.module(name).prepare(given)
    functions = {maker: table[name] for maker, table in tools.items() if name in table}
    expected = references.expected(name, FUNCTION.get(name, "gradient"), given)
    for function in functions.values():
        check(name, expected, function(*arguments))
        finished(function(*arguments))
    gc.collect()
    turns = [{maker: visit(function, arguments) for maker, function in functions.items()} for _ in range(rounds)]
    return {maker: min(turn[maker] for turn in turns) for maker in functions}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default=",".join(evals.NAMES))
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--cpu", type=int, default=0)
    parser.add_argument("--first", nargs=2, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {given.cpu})
    if given.first:
        return first_call(given.first[0], int(given.first[1]))
    tools = {}
    for maker, make in rivals.MAKERS.items():
        try:
            tools[maker] = make()
        except ImportError as missing:
            print(f"{maker} is left out: {missing}")
    print("| microseconds: call; first call; MB | " + " | ".join(tools) + " | of the best rival |")
    print("|---" * (len(tools) + 2) + "|")
    for cell, (name, size) in enumerate(CELLS):
        if name not in given.only.split(","):
            continue
        firsts = {maker: measured(maker, cell) for maker in tools if name in tools[maker]}
        found = times(name, size, tools, given.rounds)
        row = [label(name, size)]
        for maker in tools:
            if maker not in found:
                row.append("-")
                continue
            seconds, megabytes = firsts[maker] or (float("nan"), float("nan"))
            row.append(f"{1e6 * found[maker]:,.1f}; {1e6 * seconds:,.0f}; {megabytes:,.0f}")
        others = [found[maker] for maker in found if maker != "burtorch"]
        row.append(f"{found['burtorch'] / min(others):.2f}" if others else "-")
        print("| " + " | ".join(row) + " |", flush=True)


if __name__ == "__main__":
    main()
