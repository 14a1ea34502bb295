"""``burtorch bench``: eager graphs, training steps of the paper's models, memory and start-up.

``bench eager`` times one small graph from Python, with plain floats and micrograd for comparison; the others have their
own modules.

Every contender's answer is checked before anything is timed. Contenders alternate in short slices within one run, so
that other load slows them equally; medians and minima are over the slices. Each bench is imported when it runs, so that
other commands, above all training, do not pay for its imports.
"""

from __future__ import annotations

import argparse
import math
from time import perf_counter
from typing import TYPE_CHECKING, Any

import burtorch
from burtorch.cli.arguments import count
from burtorch.cli.errors import InputError

if TYPE_CHECKING:
    from burtorch.cli import bench_graphs

SLICE_SECONDS = 0.01
CALLS = 5000
FUNCTION_PEERS = ("jax", "casadi", "numba", "autograd")


def add_parser(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = commands.add_parser(
        "bench",
        help="time burtorch on this machine",
        description="eager: building and differentiating the tiny and the small graph, in ns, with plain Python "
        "floats, a handwritten gradient and, if installed, micrograd. function: calling and mapping traced functions, "
        "in ns, with the rivals of --peers. mlp: one SGD step of the character model; gpt: a gradient of "
        "the paper's GPT; both in ms. memory: peak memory of whole processes, in MB. startup: their time, "
        "in ms. threads: building and gradients on one thread and on two, in ms. io: saving and loading 7 of 32 "
        "numbers, in us per call.",
    )
    parser.add_argument(
        "what",
        choices=["eager", "function", "mlp", "gpt", "memory", "startup", "threads", "io"],
        help="what to measure",
    )
    parser.add_argument(
        "--rounds", type=count, default=25, metavar="N", help="slices per contender (default %(default)s)"
    )
    parser.add_argument("--calls", type=count, metavar="N", help=f"io: saves and loads per contender (default {CALLS})")
    parser.add_argument("--folder", metavar="DIR", help="io: the folder of the files (default: in memory, if possible)")
    parser.add_argument("--json", action="store_true", help="print JSON instead of a table")
    cells = parser.add_argument_group("mlp and gpt")
    cells.add_argument(
        "--hidden", type=counts, metavar="E,E", help="mlp: hidden sizes (default 4,16,32,64,128,512,1024)"
    )
    cells.add_argument(
        "--batch", type=counts, metavar="B,B", help="batch sizes (default 1,64 for mlp, 1,2,4,8,16,32,64 for gpt)"
    )
    parser.add_argument(
        "--peers",
        type=peers,
        default=[],
        metavar="NAME,NAME",
        help=f"function: {', '.join(FUNCTION_PEERS)}, if they are installed",
    )
    parser.set_defaults(run=run)


def counts(text: str) -> list[int]:
    """Integers separated by commas."""
    return [count(part) for part in text.split(",")]


def peers(text: str) -> list[str]:
    """Names of rivals separated by commas."""
    names = text.split(",")
    for name in names:
        if name not in FUNCTION_PEERS:
            raise argparse.ArgumentTypeError(f"{name!r}: expected {', '.join(FUNCTION_PEERS)}")
    return names


OPTIONS = {"calls": ("io",), "folder": ("io",), "hidden": ("mlp",), "batch": ("mlp", "gpt"), "peers": ("function",)}
"""The measurements that take an option."""


def run(args: argparse.Namespace) -> int:
    for name, takers in OPTIONS.items():
        if getattr(args, name) and args.what not in takers:
            raise InputError(f"--{name} is an option of bench {' and '.join(takers)}, not of bench {args.what}")
    benches = {
        "eager": run_eager,
        "function": run_function,
        "mlp": run_mlp,
        "gpt": run_gpt,
        "memory": run_memory,
        "startup": run_startup,
        "threads": run_threads,
        "io": run_io,
    }
    return benches[args.what](args)


def run_function(args: argparse.Namespace) -> int:
    from burtorch.cli import bench_function

    return bench_function.run(args)


def run_threads(args: argparse.Namespace) -> int:
    from burtorch.cli import bench_threads

    return bench_threads.run(args.rounds, 8 * args.rounds, args.json)


def run_mlp(args: argparse.Namespace) -> int:
    from burtorch.cli import bench_mlp

    record = header("mlp", "ms per SGD step", args.rounds)
    try:
        for hidden in args.hidden or bench_mlp.HIDDEN:
            for batch in args.batch or bench_mlp.BATCHES:
                cell = f"e={hidden}, b={batch}"
                record["cells"][cell] = bench_mlp.measure(hidden, batch, args.rounds)
    except (ValueError, AssertionError) as error:
        print(f"burtorch bench: {error}")
        return 1
    return show(record, args.json, ("median", "minimum", "compile_seconds"))


def run_gpt(args: argparse.Namespace) -> int:
    from burtorch.cli import bench_gpt

    record = header("gpt", "ms per loss and gradient", args.rounds)
    try:
        record["cells"] = bench_gpt.measure(tuple(args.batch or bench_gpt.BATCHES), args.rounds)
    except (ValueError, AssertionError) as error:
        print(f"burtorch bench: {error}")
        return 1
    record["process"] = bench_gpt.peaks()
    return show(record, args.json, ("median", "minimum", "quartile", "compile_seconds"))


def run_memory(args: argparse.Namespace) -> int:
    from burtorch.cli import bench_process

    record = header("memory", "MB at the peak", 1)
    record["cells"]["whole processes"] = bench_process.memory()
    return show(record, args.json, ("peak_resident", "peak_virtual"))


def run_startup(args: argparse.Namespace) -> int:
    from burtorch.cli import bench_process

    record = header("startup", "ms per process", args.rounds)
    record["cells"]["whole processes"] = bench_process.startup(args.rounds)
    return show(record, args.json, ("median", "minimum"))


def run_io(args: argparse.Namespace) -> int:
    from burtorch.cli import bench_io

    record = {**header("io", "us per call", bench_io.SLICES), **bench_io.run(args.calls or CALLS, args.folder)}
    del record["cells"]
    if args.json:
        import json

        print(json.dumps(record, indent=1))
    else:
        print(f"burtorch {record['burtorch']} ({record['cpu_level']})")
        bench_io.show(record)
    return 0


def header(bench: str, unit: str, rounds: int) -> dict[str, Any]:
    """A record without rows."""
    level = burtorch.system.cpu_level()
    return {
        "burtorch": burtorch.__version__,
        "cpu_level": level,
        "bench": bench,
        "unit": unit,
        "rounds": rounds,
        "cells": {},
    }


def show(record: dict[str, Any], as_json: bool, columns: tuple[str, ...]) -> int:
    """Prints a record as JSON or as a table for each cell."""
    if as_json:
        import json

        print(json.dumps(record, indent=1))
        return 0
    print(f"burtorch {record['burtorch']} ({record['cpu_level']}): {record['unit']}, {record['rounds']} slices")
    for cell, rows in record["cells"].items():
        print(f"\n{cell:<34}" + "".join(f"{column:>17}" for column in columns))
        for name, row in rows.items():
            print(f"{name:<34}" + "".join(f"{row[column]:>17,.4f}" for column in columns))
    return 0


def run_eager(args: argparse.Namespace) -> int:
    from burtorch.cli import bench_graphs

    record: dict[str, Any] = {
        "burtorch": burtorch.__version__,
        "cpu_level": burtorch.system.cpu_level(),
        "bench": "eager",
        "unit": "ns per graph",
        "rounds": args.rounds,
        "graphs": {},
        "ratios": {},
    }
    for graph, contenders in bench_graphs.GRAPHS.items():
        present = {name: loop for name, loop in contenders.items() if _works(loop)}
        for name, loop in present.items():
            wrong = wrong_answer(loop(1), bench_graphs.ANSWERS[graph])
            if wrong:
                print(f"burtorch bench: {name} is wrong on the {graph} graph: {wrong}")
                return 1
        rows = record["graphs"][graph] = interleaved(present, args.rounds)
        record["ratios"][graph] = {
            f"{slow} / {fast}": rows[slow]["median"] / rows[fast]["median"]
            for slow, fast in bench_graphs.RATIOS
            if slow in rows and fast in rows
        }
    if args.json:
        import json

        print(json.dumps(record, indent=1))
        return 0
    print(f"burtorch {record['burtorch']} ({record['cpu_level']}): ns per graph, {args.rounds} slices")
    for graph, rows in record["graphs"].items():
        print(f"\n{graph + ' graph':<34}{'median':>10}{'minimum':>10}")
        for name, row in rows.items():
            print(f"{name:<34}{row['median']:>10,.0f}{row['minimum']:>10,.0f}")
        for name, ratio in record["ratios"][graph].items():
            print(f"{name}: {ratio:.2f}")
    return 0


def _works(loop: bench_graphs.Loop) -> bool:
    try:
        loop(1)
    except ImportError:
        return False
    return True


def wrong_answer(found: tuple[float, ...], expected: tuple[float, ...]) -> str | None:
    """``None`` if the result (the value, or value and gradient) agrees with the answer up to rounding."""
    for number, answer in zip(found, expected):
        if not math.isclose(number, answer, rel_tol=1e-13):
            return f"found {found}, expected {expected[: len(found)]}"
    return None


def interleaved(contenders: dict[str, bench_graphs.Loop], rounds: int) -> dict[str, dict[str, float]]:
    repeats = {name: _repeats(loop) for name, loop in contenders.items()}
    times: dict[str, list[float]] = {name: [] for name in contenders}
    for _ in range(rounds):
        for name, loop in contenders.items():
            start = perf_counter()
            loop(repeats[name])
            times[name].append(1e9 * (perf_counter() - start) / repeats[name])
    return {name: {"median": sorted(slices)[rounds // 2], "minimum": min(slices)} for name, slices in times.items()}


def _repeats(loop: bench_graphs.Loop) -> int:
    """The number of runs of a contender in one slice."""
    repeats = 1
    while True:
        start = perf_counter()
        loop(repeats)
        elapsed = perf_counter() - start
        if elapsed >= SLICE_SECONDS / 4:
            return max(1, round(repeats * SLICE_SECONDS / elapsed))
        repeats *= 4
