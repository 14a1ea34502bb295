"""Does a loop that never rewinds stay in constant memory, and at what price?

    .venv/bin/python benches/python/endless_loop.py [--iterations 1000000]

Builds and differentiates the small graph over and over. Three loops take turns in slices, so that a busy machine slows
them all alike: one that rewinds by hand, one that never does, and one that never does while 20,000 leaves, made among
garbage, stay alive. Prints their times, and how much the resident memory of the process grew from the end of the
warm-up to the end. Linux only, as it reads /proc.
"""

from __future__ import annotations

import argparse
import gc
import os
from time import perf_counter

import burtorch as bt
from burtorch.cli import bench_graphs

N_KEPT, WARM_UP, SLICE = 20_000, 20_000, 5_000
EXPECTED = bench_graphs.ANSWERS["small"]
LOOP = bench_graphs.GRAPHS["small"]["burtorch, value and gradient"]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--iterations", type=int, default=1_000_000, help="of the loop that never rewinds")
    iterations = parser.parse_args().iterations
    graphs = {name: bt.Graph() for name in ("rewind by hand", "no rewind", f"no rewind, {N_KEPT:,} leaves kept")}
    by_hand, plain, crowded = graphs.values()
    mark = by_hand.mark()
    kept = []
    with crowded:
        while len(kept) < N_KEPT:
            kept.append(bt.Value(float(len(kept))))
            kept[-1] * 2.0 + 1.0  # garbage
    times: dict[str, list[float]] = {name: [] for name in graphs}

    def run(name: str, turns: int) -> float:
        start = perf_counter()
        with graphs[name]:
            if graphs[name] is by_hand:
                for _ in range(turns):
                    found = LOOP(1)
                    by_hand.rewind(mark)
            else:
                for _ in range(turns):
                    found = LOOP(1)
        assert all(abs(x - y) <= 1e-12 * abs(y) for x, y in zip(found, EXPECTED)), found
        return 1e9 * (perf_counter() - start) / turns

    for name in graphs:
        run(name, WARM_UP)
    gc.collect()
    nodes, before = len(plain), resident()
    for _ in range(max(1, iterations // SLICE)):
        for name in graphs:
            times[name].append(run(name, SLICE))
    grown = resident() - before
    medians = {name: sorted(slices)[len(slices) // 2] for name, slices in times.items()}
    print(f"{'loop':<36}{'ns per graph':>14}{'of rewinding by hand':>22}")
    for name, median in medians.items():
        print(f"{name:<36}{median:>14,.0f}{median / medians['rewind by hand']:>22.3f}")
    print(f"resident memory grew by {grown / 1024:,.0f} KiB over {iterations:,} iterations of each")
    print(f"nodes of the graph that never rewinds: {nodes} after the warm-up, {len(plain)} at the end")
    print(f"nodes where {N_KEPT:,} leaves are kept: {len(crowded):,}")
    assert [value.data for value in kept] == [float(k) for k in range(N_KEPT)]
    return 0


def resident() -> int:
    """The resident bytes of this process."""
    with open("/proc/self/statm") as statm:
        return int(statm.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


if __name__ == "__main__":
    raise SystemExit(main())
