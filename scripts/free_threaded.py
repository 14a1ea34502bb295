"""Random operations of several threads on shared objects, beside a sequential model, on a free-threaded CPython.

    python scripts/free_threaded.py
    PYTHON_GIL=0 python scripts/free_threaded.py
    python scripts/free_threaded.py values branches --operations 1000000
    PYTHON_GIL=0 python scripts/free_threaded.py --scaling

The test run has no such interpreter: build the module for one, `maturin build --release -i python3.14t`, and install it
there. Every number is compared with the one that one thread with plain floats has. Each subject runs in a process of
its own, so that a crash is a line of the table.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import threading
import time
import warnings
from collections.abc import Callable
from functools import partial

import free_threaded_functions as of_functions
import free_threaded_graphs as of_graphs
import free_threaded_more as of_more
from free_threaded_model import THREADS, together

import burtorch as bt

# A subject that takes longer than this many seconds hangs.
LONGEST = 1800

SUBJECTS: dict[str, Callable[[int], None]] = {
    "values": of_graphs.values,
    "values, no reclaim": partial(of_graphs.values, reclaim=False),
    "dying values": of_graphs.dying_values,
    "graphs": of_graphs.graphs,
    "branches": of_graphs.branches,
    "of branches": of_graphs.of_branches,
    "vectors": of_graphs.vectors,
    "labels": of_graphs.labels,
    "operands": of_graphs.operands,
    "lists": of_graphs.lists,
    "numbers": of_graphs.numbers,
    "layers": of_graphs.layers,
    "arrays": of_functions.arrays,
    "oracles": of_functions.oracles,
    "callables": of_functions.callables,
    "functions": of_functions.functions,
    "transforms": of_functions.transforms,
    "sources": of_functions.sources,
    "primitives": of_functions.primitives,
    "tools": of_functions.tools,
    "files": of_graphs.files,
    "methods": of_more.methods,
    "messages": of_more.messages,
    "streams": of_more.streams,
    "texts": of_more.texts,
    "copies": of_more.copies,
    "parameters": of_more.parameters,
    "scopes": of_more.scopes,
    "pools": of_more.pools,
    "gradients": of_more.gradients,
    "collections": of_more.collections,
    "first": of_more.first,
}


def count(n: int) -> None:
    """A loop without burtorch, for what a second core gives at this moment."""
    x = 0.5
    for k in range(n):
        x = x * 0.5 + float(k % 7)


def build(n: int) -> None:
    """Scalars on a graph of one's own."""
    with bt.Graph():
        x = bt.Value(0.5)
        for _ in range(n // 1000):
            y = x
            for _ in range(500):
                y = y * x + 1.0


def speed_up(work: Callable[[int], None], n: int) -> float:
    """How many times the work of one thread two threads do in the same time."""
    ratios = []
    for _ in range(7):
        begin = time.perf_counter()
        together(partial(work, n))
        alone = time.perf_counter() - begin
        begin = time.perf_counter()
        together(*[partial(work, n)] * 2)
        ratios.append(2 * alone / (time.perf_counter() - begin))
    return sorted(ratios)[3]


def scaling() -> None:
    """What a second core gives: to a counting loop, to independent graphs, to branches of one."""

    def on_branches(n: int) -> None:
        with branch_of[threading.current_thread().name]:
            x = bt.Value(0.5)
            for _ in range(n // 2):
                x = x * 0.5 + 1.0

    branch_of: dict[str, bt.Graph] = {}
    loop, own = speed_up(count, 4_000_000), speed_up(build, 1_000_000)
    print(f"a second core gives a counting loop {loop:.2f}, independent graphs {own:.2f} ({own / loop:.2f} of it)")
    alone, both = [], []
    for _ in range(7):
        for n_threads, into in ((1, alone), (2, both)):
            graph = bt.Graph()
            with graph:
                bt.Value(1.0)
            branch_of = {f"branch {k}": branch for k, branch in enumerate(graph.branches(n_threads))}
            threads = [threading.Thread(target=on_branches, args=(400_000,), name=name) for name in branch_of]
            begin = time.perf_counter()
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            into.append(time.perf_counter() - begin)
            graph.drop_branches()
    gain = 2 * sorted(alone)[3] / sorted(both)[3]
    print(f"branches of one graph {gain:.2f} ({gain / loop:.2f} of it)")


def main() -> int:
    """Print a line for each subject; return 1 if a subject failed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("subjects", nargs="*", metavar="SUBJECT", help=", ".join(SUBJECTS))
    parser.add_argument("--operations", type=int, default=100_000, help="of all threads together, for each subject")
    parser.add_argument("--scaling", action="store_true", help="measure what a second core gives instead")
    parser.add_argument("--here", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if unknown := set(arguments.subjects) - set(SUBJECTS):
        parser.error(f"no such subject: {', '.join(sorted(unknown))}")
    if arguments.here:
        warnings.simplefilter("ignore", bt.StaleRiskWarning)
        for name in arguments.subjects:
            SUBJECTS[name](arguments.operations)
        return 0
    is_on = getattr(sys, "_is_gil_enabled", lambda: True)()
    print(f"CPython {sys.version.split()[0]}, the interpreter's lock is {'on' if is_on else 'off'}, {THREADS} threads")
    if arguments.scaling:
        scaling()
        return 0
    failed = False
    for name in arguments.subjects or SUBJECTS:
        command = [sys.executable, __file__, name, "--here", "--operations", str(arguments.operations)]
        begin = time.perf_counter()
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=LONGEST)
            said = "as one thread" if done.returncode == 0 else f"{done.returncode}: {done.stderr.strip()[-200:]}"
        except subprocess.TimeoutExpired:
            said = f"not over after {LONGEST} s"
        took = time.perf_counter() - begin
        failed |= said != "as one thread"
        print(f"{name:20} {arguments.operations:>9,} operations {took:6.1f} s  {said}", flush=True)
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
