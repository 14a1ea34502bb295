"""The command ``burtorch``, which is also ``python -m burtorch``: one module per subcommand.

Promises that a user never sees a traceback for something a user can cause: bad input is one line on stderr and
exit code 2, an interrupt exit code 130, anything the machine refuses (memory, disk) exit code 1.
"""

from __future__ import annotations

import io
import os
import sys
from typing import TYPE_CHECKING

from burtorch import BurtorchError, __version__
from burtorch.cli import bench, generate, graph, info, selftest, train
from burtorch.cli.arguments import Parser
from burtorch.cli.errors import InputError, reason

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["main"]

INTERRUPTED = 130


def build_parser() -> Parser:
    """The parser of the whole command line."""
    parser = Parser(
        prog="burtorch",
        description="Gradients of scalar functions on a CPU, with the lowest latency and the least memory.",
        epilog="'burtorch COMMAND --help' says more about a command.",
    )
    parser.add_argument("--version", action="version", version=f"burtorch {__version__}")
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", dest="command")
    for module in (train, generate, graph, bench, selftest, info):
        module.add_parser(commands)
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Runs one command and returns its exit code."""
    if isinstance(sys.stdout, io.TextIOWrapper):  # a terminal that lacks a symbol shows its escape
        sys.stdout.reconfigure(errors="backslashreplace")
    parser = build_parser()
    args = parser.parse_args(argv)
    if args.command is None:
        parser.print_help(sys.stderr)
        return 2
    try:
        status: int = args.run(args)
        sys.stdout.flush()
        return status
    except InputError as error:
        return _fail(args.command, str(error), 2)
    except KeyboardInterrupt:
        return _fail(args.command, "interrupted", INTERRUPTED)
    except BrokenPipeError:  # the reader of stdout has gone, as in `burtorch generate ... | head -1`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except MemoryError as error:
        return _fail(args.command, f"not enough memory: {error}" if str(error) else "not enough memory", 1)
    except BurtorchError as error:
        return _fail(args.command, str(error), 1)
    except OSError as error:
        where = f"{error.filename}: " if error.filename else ""
        return _fail(args.command, f"{where}{reason(error)}", 1)


def _fail(command: str, message: str, status: int) -> int:
    print(f"burtorch {command}: error: {message}", file=sys.stderr)
    return status
