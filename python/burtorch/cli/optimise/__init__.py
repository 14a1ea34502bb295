"""``burtorch optimise``: methods of ``burtorch.opt`` on the samples of a LIBSVM file: a table, CSV, and charts."""

from __future__ import annotations

import argparse
import json
import math
import os
from contextlib import ExitStack, redirect_stderr, redirect_stdout
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from burtorch.cli.arguments import count, positive, seed
from burtorch.cli.errors import InputError, say
from burtorch.cli.optimise.choices import COMPRESSORS, METHODS, PROBLEMS, Choices, check, started, usual

if TYPE_CHECKING:
    from collections.abc import Callable

    from burtorch import mpi
    from burtorch._core import FiniteSum


def add_parser(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = commands.add_parser(
        "optimise",
        help="run optimisation methods on a LIBSVM file",
        description="Minimise a problem over the samples of a file by methods with proven rates, and compare them.",
        epilog="example: burtorch optimise --problem logistic --data a9a --method page,ef21 --compressor topk:0.05 "
        "--clients 20 --epochs 50 --seeds 5 --out runs",
    )
    parser.set_defaults(run=run)
    parser.add_argument("--problem", choices=PROBLEMS, default="logistic", help="(default logistic)")
    parser.add_argument("--data", metavar="FILE", required=True, help="samples in LIBSVM format")
    parser.add_argument(
        "--labels", metavar="NEG,POS", help="the two labels of logistic regression (default: those found)"
    )
    parser.add_argument(
        "--method",
        metavar="NAMES",
        default="page",
        help=f"from {', '.join(METHODS)}, optionally with a compressor, as in ef21:topk:0.05 (default page)",
    )
    parser.add_argument(
        "--compressor", metavar="NAME[:NUMBER]", default="identity", help=f"one of {', '.join(COMPRESSORS)}"
    )
    parser.add_argument(
        "--downlink", metavar="NAME[:NUMBER]", help="compressor of the server of ef21-bc (default: that of its clients)"
    )
    parser.add_argument(
        "--clients", type=count, metavar="N", help="clients with consecutive samples (default: at most 20)"
    )
    parser.add_argument("--step", default="theory", help='a number, "theory" or "theory*FACTOR" (default theory)')
    parser.add_argument("--batch", type=count, default=1, metavar="N", help="samples per step (default 1)")
    parser.add_argument("--l2", type=float, default=0.0, metavar="X", help="factor of |x|^2/2 (default 0)")
    parser.add_argument("--nonconvex", type=float, default=0.0, metavar="X", help="factor of the non-convex sum")
    parser.add_argument(
        "--epochs", type=positive, default=10.0, metavar="X", help="oracle calls divided by n (default 10)"
    )
    parser.add_argument("--seeds", type=count, default=1, metavar="N", help="runs of each method (default 1)")
    parser.add_argument("--seed", type=seed, default=0, metavar="N", help="seed of the first run (default 0)")
    parser.add_argument("--records", type=count, default=50, metavar="N", help="the most records per run (default 50)")
    parser.add_argument("--cohort", type=count, metavar="N", help="clients per round (default all)")
    parser.add_argument(
        "--local-steps", type=count, default=5, metavar="N", help="local steps of fedavg and scaffold (default 5)"
    )
    parser.add_argument(
        "--momentum", type=positive, default=0.1, metavar="X", help="momentum of ef21-sgdm (default 0.1)"
    )
    parser.add_argument("--engine", choices=("local", "mpi"), default="local", help="(default local)")
    parser.add_argument(
        "--timeout", type=positive, default=60.0, metavar="SECONDS", help="longest exchange (default 60)"
    )
    parser.add_argument(
        "--threads", type=count, default=1, metavar="N", help="threads, which change no bit (default 1)"
    )
    parser.add_argument("--out", metavar="DIR", help="folder for the results (default: nothing is saved)")
    parser.add_argument("--resume", action="store_true", help="continue the runs in that folder")
    parser.add_argument(
        "--checkpoint", type=positive, default=5.0, metavar="SECONDS", help="time between saves (default 5)"
    )
    parser.add_argument("--json", action="store_true", help="print the results as JSON")


def run(args: argparse.Namespace) -> int:
    if find_spec("numpy") is None:
        raise InputError("methods need NumPy (pip install numpy)")
    if args.engine == "local":
        return _compare(args, None)
    engine = started(args)
    return _with_others(engine, lambda: _compare(args, engine))


def _with_others(engine: mpi.Engine, work: Callable[[], int]) -> int:
    """Runs ``work`` in every MPI process: only rank 0 prints, and an error of one process ends all."""
    try:
        with open(os.devnull, "w", encoding="utf-8") as nothing, ExitStack() as stack:
            if engine.rank != 0:
                stack.enter_context(redirect_stdout(nothing))
                stack.enter_context(redirect_stderr(nothing))
            return work()
    except InputError as error:
        # All processes have it; the first exit may end the others, so it waits until the message is written.
        if engine.rank == 0:
            say(f"burtorch optimise: error: {error}")
        engine.tell(b"")
        return 2
    except BaseException as error:
        say(f"burtorch optimise: error: rank {engine.rank}: {type(error).__name__}: {error}")
        engine.abort()
        raise


def _compare(args: argparse.Namespace, engine: mpi.Engine | None) -> int:
    from burtorch.cli.optimise.folder import Folder
    from burtorch.cli.optimise.runs import one, summary

    names = [usual(entry) for entry in args.method.split(",")]
    for name in names:
        check(name, args.engine)
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise InputError(f"--method {args.method}: {twice} appears twice")
    if args.resume and args.out is None:
        raise InputError("--resume needs --out, the folder of the runs to continue")
    try:
        choices = Choices(args, engine)
        # Every method is created before any of them runs, so that errors are found first.
        methods = {name: choices.method(name, args.seed) for name in names}
        folder = None if args.out is None else Folder(args, engine)
        runs = {
            name: [one(args, choices, name, args.seed + k, folder, methods.pop(name, None)) for k in range(args.seeds)]
            for name in names
        }
    except ValueError as error:
        raise InputError(str(error)) from None
    rows = [summary(name, found) for name, found in runs.items()]
    if args.json:
        print(json.dumps([_told(row) for row in rows], indent=1))
    else:
        _table(choices.problem, rows)
    if folder is not None:
        folder.write(runs)
        say(f"results in {folder.path}")
    diverged = [name for name, found in runs.items() if any(one["diverged"] for one in found)]
    for name in diverged:
        say(f"{name} diverged: its figures are those of the last finite iterate")
    return 1 if diverged else 0


def _told(row: dict[str, Any]) -> dict[str, Any]:
    """The row with null in place of numbers that JSON cannot represent."""
    return {key: None if isinstance(x, float) and not math.isfinite(x) else x for key, x in row.items()}


def _table(problem: FiniteSum, rows: list[dict[str, Any]]) -> None:
    print(f"{problem.kind}: n={problem.n}, d={problem.d}")
    width = max(10, *(len(row["method"]) for row in rows))
    print(f"{'method':{width}s} {'loss':>14s} {'|grad f|':>10s} {'epochs':>8s} {'bits':>10s} {'seconds':>9s}")
    for row in rows:
        print(
            f"{row['method']:{width}s} {row['loss']:14.8g} {row['grad_norm']:10.2e} {row['epochs']:8.1f} "
            f"{row['bits']:10.3g} {row['seconds']:9.3g}"
        )
