"""Times the rivals alone: the tables that burtorch's own figures are set against.

    python bench_peers.py [--what mlp,gpt,scalar] [--rounds 20] [--cpu 1] [--clock wall] [--record]

Every answer is checked against the others first. Rivals are interleaved: each round visits every problem and every
rival for 20 ms, so that a busy neighbour costs all of them rounds, not one of them its result. One thread, one core,
minimum and median of the rounds.
torch keeps compiled code between runs: TORCHINDUCTOR_FORCE_DISABLE_CACHES=1 shows its full compile times.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import os
import platform
import statistics
import time
import timeit
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial

from record import cpu_name, write_record

from burtorch.cli.reproduce import programs as peers
from burtorch.cli.reproduce.programs import graphs, scalar_peers
from burtorch.cli.reproduce.programs.peer import Peer

MLP_CELLS = [(hidden, batch) for hidden in (4, 16, 32, 64, 128, 512, 1024) for batch in (1, 64)]
GPT_BATCHES = (1, 8, 64)
VISIT_SECONDS = 0.02
# Process time equals wall time on an idle machine, because a single thread never waits.
CLOCKS: dict[str, Callable[[], float]] = {"wall": time.perf_counter, "cpu": time.process_time}
PACKAGES = ("numpy", "torch", "jax", "numba", "casadi", "micrograd")


@dataclass
class Timing:
    """One rival on one problem: seconds per step, by round."""

    peer: Peer
    rounds: list[float] = field(default_factory=list)
    repeats: int = 1

    def warm(self) -> None:
        """Finds the number of steps that fill a visit."""
        timeit.timeit(self.peer.step, number=3)
        seconds = min(timeit.repeat(self.peer.step, number=3, repeat=5)) / 3
        self.repeats = max(1, int(VISIT_SECONDS / seconds))

    def visit(self, clock: Callable[[], float]) -> None:
        """A quarter of a visit to warm the caches, then a timed one."""
        timeit.timeit(self.peer.step, number=max(1, self.repeats // 4))
        self.rounds.append(timeit.timeit(self.peer.step, number=self.repeats, timer=clock) / self.repeats)


Problems = dict[str, list[Timing]]


def make_all(label: str, names: tuple[str, ...], make: Callable[[str], Peer | None]) -> Problems:
    """The installed rivals on one problem, compared with each other."""
    found = [peer for peer in map(make, names) if peer is not None]
    peers.check(found)
    print(f"{label}: {', '.join(peer.name for peer in found)} agree", flush=True)
    return {label: [Timing(peer) for peer in found]}


def time_all(problems: Problems, rounds: int, clock: Callable[[], float]) -> None:
    """Visits every problem and rival, round by round."""
    timings = [timing for group in problems.values() for timing in group]
    for timing in timings:
        timing.warm()
    for _ in range(rounds):
        for timing in timings:
            timing.visit(clock)


def table(problems: Problems, unit: str, scale: float, names: tuple[str, ...]) -> str:
    """Minimum and median by problem and rival; the fastest minimum in bold."""
    present = [name for name in names if any(t.peer.name == name for group in problems.values() for t in group)]
    lines = [f"| {unit}, minimum (median) | {' | '.join(present)} |", "|---" * (len(present) + 1) + "|"]
    for label, group in problems.items():
        best = min(min(t.rounds) for t in group)
        cells = {t.peer.name: entry(t, scale, best) for t in group}
        lines.append(f"| {label} | {' | '.join(cells.get(name, '-') for name in present)} |")
    return "\n".join(lines) + "\n"


def entry(timing: Timing, scale: float, best: float) -> str:
    """One cell of a table, with three digits."""
    low, middle = min(timing.rounds), statistics.median(timing.rounds)
    digits = f"{low * scale:#.3g}".rstrip(".")
    return f"{f'**{digits}**' if low == best else digits} ({middle * scale:#.3g})".replace(".)", ")")


def compile_times(problems: Problems, names: tuple[str, ...]) -> str:
    """The compile time of each rival before its first step, by problem."""
    lines = []
    for name in names:
        seconds = [t.peer.compile_seconds for group in problems.values() for t in group if t.peer.name == name]
        if seconds and max(seconds) > 0.1:
            lines.append(f"{name} {min(seconds):.1f} to {max(seconds):.1f} s")
    return f"Compile time before the first step: {'; '.join(lines) or 'none'}.\n"


def versions() -> str:
    """Versions of the installed rivals."""
    found = []
    for package in PACKAGES:
        try:
            found.append(f"{package} {importlib.metadata.version(package)}")
        except importlib.metadata.PackageNotFoundError:
            continue
    return f"{', '.join(found)}; CPython {platform.python_version()}"


def measure(what: list[str], rounds: int, clock: Callable[[], float]) -> str:
    """Everything requested, as Markdown. Scalars come last, because their JAX rival changes the process's precision."""
    from burtorch.cli.reproduce.programs.cells import gpt_cell, mlp_cell  # imports NumPy, after threads are limited

    text = ""
    if "mlp" in what:
        problems: Problems = {}
        for hidden, batch in MLP_CELLS:
            cell = mlp_cell(hidden, batch)
            problems |= make_all(f"e={hidden}, b={batch}", peers.NAMES, partial(peers.make, cell=cell))
        time_all(problems, rounds, clock)
        text += "\n## Character MLP, one SGD step (float32)\n\n" + table(problems, "ms", 1e3, peers.NAMES)
        text += "\n" + compile_times(problems, peers.NAMES)
    if "gpt" in what:
        problems = {}
        for batch in GPT_BATCHES:
            cell = gpt_cell(batch)
            problems |= make_all(f"b={batch}", peers.NAMES, partial(peers.make, cell=cell))
        time_all(problems, rounds, clock)
        text += "\n## GPT of 46,289 parameters, loss and gradient (float32)\n\n" + table(
            problems, "ms", 1e3, peers.NAMES
        )
        text += "\n" + compile_times(problems, peers.NAMES)
    if "scalar" in what:
        problems = {}
        for graph in graphs.POINTS:
            names = scalar_peers.NAMES
            problems |= make_all(graph, names, partial(scalar_peers.make, graph=graph))
        time_all(problems, rounds, clock)
        text += "\n## One scalar expression, value and both partials (float64)\n\n"
        text += table(problems, "ns", 1e9, scalar_peers.NAMES) + "\n" + compile_times(problems, scalar_peers.NAMES)
    return text


def main() -> None:
    parser = argparse.ArgumentParser(description="Time the rivals that are installed.")
    parser.add_argument("--what", default="mlp,gpt,scalar")
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--cpu", type=int, default=max(os.sched_getaffinity(0)), help="the core to run on")
    parser.add_argument("--clock", choices=CLOCKS, default="wall", help="cpu leaves out the time that other work took")
    parser.add_argument("--record", action="store_true", help="write benches/record/<date>-<cpu>-peers.md")
    args = parser.parse_args()
    peers.hold_to_one_thread()
    os.sched_setaffinity(0, {args.cpu})
    load = os.getloadavg()[0]
    head = (
        f"# Rivals, measured alone\n\n{cpu_name()}, one core, one thread each; {versions()}.\n"
        f"{args.rounds} interleaved rounds of {VISIT_SECONDS * 1e3:.0f} ms, {args.clock} time. "
        "Losses, gradients and weights agreed within 1e-5 beforehand.\n"
    )
    body = measure(args.what.split(","), args.rounds, CLOCKS[args.clock])
    foot = f"\nLoad average {load:.1f} before and {os.getloadavg()[0]:.1f} after, on {os.cpu_count()} cores.\n"
    print(head + body + foot)
    if args.record:
        write_record("peers", head + body + foot)


if __name__ == "__main__":
    main()
