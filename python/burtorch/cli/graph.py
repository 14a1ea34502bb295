"""``burtorch graph FILE.py:function``: a picture of a function of Values."""

from __future__ import annotations

import argparse
import math
import os
from collections.abc import Callable
from typing import Any

import burtorch
from burtorch import _core
from burtorch.cli.arguments import count
from burtorch.cli.errors import UNUSABLE, InputError, reason


def add_parser(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = commands.add_parser(
        "graph",
        help="draw the graph of a function",
        description="Run a Python file, call one of its functions with Values, and draw the graph with its gradients. "
        "Without an output option, the graph is printed in Graphviz's language.",
        epilog="example: burtorch graph model.py:loss --at -41 2 --svg loss.svg",
    )
    parser.add_argument("function", metavar="FILE.py:NAME", help="the file to run, and a function in it")
    parser.add_argument("--at", type=_number, nargs="+", metavar="X", help="the arguments (default: 1 for each)")
    for kind in ("svg", "html", "dot"):
        parser.add_argument(f"--{kind}", metavar="OUT", help=f"write the picture as {kind.upper()}")
    parser.add_argument(
        "--max-nodes", type=count, default=150, metavar="N", help="the most boxes to draw (default %(default)s)"
    )
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    function, name = _function(args.function)
    graph = burtorch.Graph(reclaim=False)
    with graph:
        values = [burtorch.Value(x, label=label) for label, x in _arguments(function, name, args.at)]
        root = _call(function, name, values)
    if not root.label:
        root.label = name
    root.backward()
    written = False
    for kind, text in (("svg", graph.to_svg), ("html", graph.to_html), ("dot", graph.to_dot)):
        path = getattr(args, kind)
        if path is not None:
            try:
                _core._save_bytes(path, text(root, args.max_nodes).encode("utf-8"))
            except UNUSABLE as error:
                raise InputError(f"--{kind} {path}: {reason(error)}") from None
            written = True
    if not written:
        print(graph.to_dot(root, args.max_nodes), end="")
    return 0


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r}: expected a number") from None


def _function(target: str) -> tuple[Callable[..., Any], str]:
    import runpy

    path, colon, name = target.rpartition(":")
    if not colon or not path or not name:
        raise InputError(f"{target}: expected FILE.py:NAME")
    if not os.path.isfile(path):
        raise InputError(f"{path}: no such file")
    try:
        names = runpy.run_path(path, run_name="burtorch_graph")
    except OSError as error:
        raise InputError(f"{path}: {reason(error)}") from None
    except Exception as error:
        raise InputError(f"{path}: running it failed: {type(error).__name__}: {error}") from None
    function = names.get(name)
    if not callable(function):
        raise InputError(f"{path}: it has no function {name!r}")
    # A traced function is drawn as its body.
    return getattr(function, "__wrapped__", function), name


def _arguments(function: Callable[..., Any], name: str, at: list[float] | None) -> list[tuple[str, float]]:
    import inspect

    positional = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    try:
        parameters = list(inspect.signature(function).parameters.values())
    except (TypeError, ValueError):
        parameters = []
    wanted = [p.name for p in parameters if p.kind in positional and (p.default is p.empty or at is not None)]
    many = any(p.kind is inspect.Parameter.VAR_POSITIONAL for p in parameters)
    if at is None:
        return [(label, 1.0) for label in wanted]
    needed = sum(p.kind in positional and p.default is p.empty for p in parameters)
    if len(at) < needed or (len(at) > len(wanted) and not many):
        raise InputError(f"--at: {name} takes {needed} arguments, found {len(at)} numbers")
    labels = wanted + [f"x{k}" for k in range(len(wanted), len(at))]
    return list(zip(labels, at))


def _call(function: Callable[..., Any], name: str, values: list[burtorch.Value]) -> burtorch.Value:
    try:
        root = function(*values)
    except Exception as error:
        raise InputError(f"{name} failed: {type(error).__name__}: {error}") from None
    if not isinstance(root, burtorch.Value):
        raise InputError(f"{name} returned {type(root).__name__}, expected a Value")
    if math.isnan(float(root)):
        print(f"burtorch graph: note: {name} is NaN there")
    return root
