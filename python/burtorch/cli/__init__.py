"""The command ``burtorch``, which is also ``python -m burtorch``: one module per subcommand.

Promises that user errors give no traceback: bad input is one line on stderr and exit code 2, an interrupt exit code
130, and a refused resource (memory, disk) exit code 1.
"""

from __future__ import annotations

import io
import os
import sys
from typing import TYPE_CHECKING

from burtorch import BurtorchError, __version__
from burtorch.cli import bench, generate, graph, info, optimise, reproduce, selftest, train
from burtorch.cli.arguments import Parser
from burtorch.cli.errors import InputError, discard, reason, say

if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import TextIO

__all__ = ["main"]

INTERRUPTED = 130


def build_parser() -> Parser:
    """The parser of the whole command line."""
    parser = Parser(
        prog="burtorch",
        description="Automatic differentiation on a CPU, with low latency and little memory.",
        epilog="'burtorch COMMAND --help' says more about a command.",
    )
    parser.add_argument("--version", action="version", version=f"burtorch {__version__}")
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", dest="command")
    for module in (train, generate, graph, optimise, bench, reproduce, selftest, info):
        module.add_parser(commands)
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Runs one command and returns its exit code."""
    stdout_is_closed = _open_closed_streams()
    try:
        return _run(argv, stdout_is_closed)
    finally:
        _flush_or_discard(sys.stderr)  # a full disk behind it is no error


def _run(argv: Sequence[str] | None, stdout_is_closed: bool) -> int:
    """Runs one command on open streams."""
    if isinstance(sys.stdout, io.TextIOWrapper):  # a terminal without a symbol shows its escape
        sys.stdout.reconfigure(errors="backslashreplace")
    parser = build_parser()
    args = parser.parse_args(argv)
    if args.command is None:
        parser.print_help(sys.stderr)
        return 2
    try:
        status: int = args.run(args)
        sys.stdout.flush()
        if status == 0 and stdout_is_closed:
            return _fail(args.command, "standard output is closed", 1)
        return status
    except InputError as error:
        return _fail(args.command, str(error), 2)
    except KeyboardInterrupt:
        return _fail(args.command, "interrupted", INTERRUPTED)
    except BrokenPipeError:  # the reader of stdout has closed it, as in `burtorch generate ... | head -1`
        discard(sys.stdout)
        return 1
    except MemoryError as error:
        return _fail(args.command, f"not enough memory: {error}" if str(error) else "not enough memory", 1)
    except BurtorchError as error:
        return _fail(args.command, str(error), 1)
    except OSError as error:
        where = f"{error.filename}: " if error.filename else ""
        status = _fail(args.command, f"{where}{reason(error)}", 1)
        _flush_or_discard(sys.stdout)
        return status


def _open_closed_streams() -> bool:
    """Opens closed standard streams, so that no file takes their descriptors; returns whether stdout was closed.

    Text written to them is lost.
    """
    was_closed = sys.stdout is None
    for descriptor, name in enumerate(("stdin", "stdout", "stderr")):
        if getattr(sys, name) is None:
            null = os.open(os.devnull, os.O_RDWR)
            if null != descriptor:
                os.dup2(null, descriptor)
                os.close(null)
            setattr(sys, name, open(descriptor, "w" if descriptor else "r", encoding="utf-8"))  # noqa: SIM115
    return was_closed


def _flush_or_discard(stream: TextIO) -> None:
    """Flushes a stream or discards its content, so that the interpreter's final flush raises no second error."""
    try:
        stream.flush()
    except OSError:
        discard(stream)


def _fail(command: str, message: str, status: int) -> int:
    say(f"burtorch {command}: error: {message}")
    return status
