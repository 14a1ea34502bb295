"""``burtorch reproduce``: the tables and figures of the paper, measured on this machine.

Every launch is a separate process; contenders alternate; an answer is checked before its program is timed. The output
lists what a machine lacks (a rival, an energy meter, a compiler). This module is only the command: experiments are
imported when they run.
"""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from burtorch.cli.arguments import count, positive
from burtorch.cli.errors import InputError, say

if TYPE_CHECKING:
    from burtorch.cli.reproduce.settings import Settings

DESCRIPTION = (
    "Measure the tables and figures of the paper on this machine, beside the rivals that are installed (pip install "
    "'burtorch[peers]'), and print them as Markdown. With --out, DIR receives reproduce.md, reproduce.json, pictures."
)


def add_parser(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = commands.add_parser(
        "reproduce", help="measure the tables and figures of the paper", description=DESCRIPTION
    )
    parser.add_argument("names", nargs="*", metavar="NAME", help="table2, figure5, ... or all; --list shows them")
    parser.add_argument("--list", action="store_true", help="list the names and exit")
    parser.add_argument(
        "--peers", metavar="NAME,NAME", help="rivals to run if they are installed (default: all), or none"
    )
    parser.add_argument(
        "--launches", type=count, metavar="N", help="processes for each contender of a small graph (default 5)"
    )
    parser.add_argument(
        "--seconds", type=positive, metavar="S", help="time of iterations for each contender of a cell (default 60)"
    )
    parser.add_argument("--quick", action="store_true", help="fewer launches, iterations and sizes: minutes for all")
    parser.add_argument("--words", metavar="FILE", help="names for the character model (default: the package's)")
    parser.add_argument(
        "--text", metavar="FILE", help="text for the GPT, such as Shakespeare (default: random symbols)"
    )
    parser.add_argument(
        "--out", metavar="DIR", help="directory for the report and the pictures; a stopped run continues from there"
    )
    parser.add_argument("--json", action="store_true", help="print JSON instead of Markdown")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    from burtorch.cli.reproduce import catalogue

    if args.list:
        for name, entry in catalogue.ENTRIES.items():
            print(f"{name:<15}{entry.title}")
        return 0
    names = catalogue.expand(args.names)
    settings = _settings(args)
    return catalogue.report(names, settings, as_json=args.json)


def _settings(args: argparse.Namespace) -> Settings:
    from burtorch.cli.reproduce.settings import Settings
    from burtorch.cli.results import require_writable

    require_writable(args.out)
    settings = Settings(
        peers=_peers(args.peers),
        launches=args.launches or (1 if args.quick else 5),
        quick=args.quick,
        words=_words(args.words),
        text=_text(args.text),
        out=args.out,
        seconds=args.seconds or 60.0,
    )
    for line in settings.absences():
        say(line)
    return settings


def _peers(text: str | None) -> tuple[str, ...]:
    from burtorch.cli.reproduce.rivals import RIVALS

    if text is None:
        return tuple(RIVALS)
    if text == "none":
        return ()
    for name in text.split(","):
        if name not in RIVALS:
            raise InputError(f"--peers: unknown rival {name!r}: expected none or some of {', '.join(RIVALS)}")
    return tuple(text.split(","))


def _words(path: str | None) -> list[str]:
    from burtorch.data import default_words, read_words

    if path is None:
        return default_words()
    try:
        return read_words(path)
    except ValueError as error:
        raise InputError(f"--words {error}") from None


def _text(path: str | None) -> str | None:
    from burtorch.data import read_text

    if path is None:
        return None
    try:
        return read_text(path)
    except ValueError as error:
        raise InputError(f"--text {error}") from None
