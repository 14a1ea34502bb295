"""The parser class and the argument types of all commands. Every misuse is one line and exit code 2."""

from __future__ import annotations

import argparse
import math
import re
from typing import NoReturn

NEGATIVE = re.compile(r"-(\d|\.\d|inf|nan)", re.IGNORECASE)
"""The start of a negative number."""


class Parser(argparse.ArgumentParser):
    """Reports misuse in one line instead of the usage text, and takes no abbreviated options."""

    def __init__(self, *args: object, **kwargs: object) -> None:
        kwargs.setdefault("allow_abbrev", False)
        super().__init__(*args, **kwargs)  # type: ignore[arg-type]
        # By default argparse takes -2e-3 and -inf for options.
        self._negative_number_matcher = NEGATIVE

    def error(self, message: str) -> NoReturn:
        self.exit(2, f"{self.prog}: error: {message} (see {self.prog} --help)\n")


def count(text: str) -> int:
    """An integer from 1 to 2^31 - 1."""
    return _whole(text, 1, 2**31 - 1)


def seed(text: str) -> int:
    """An integer from 0 to 2^64 - 1."""
    return _whole(text, 0, 2**64 - 1)


def lanes(text: str) -> int | str:
    """The number of samples that an oracle computes at once: "auto" or an integer, which the oracle checks."""
    return text if text == "auto" else count(text)


def positive(text: str) -> float:
    """A finite number above 0."""
    try:
        number = float(text)
    except ValueError:
        number = math.nan
    if not (0.0 < number < math.inf):
        raise argparse.ArgumentTypeError(f"{text!r}: expected a number above 0")
    return number


def _whole(text: str, low: int, high: int) -> int:
    try:
        number = int(text)
    except ValueError:
        number = low - 1
    if not (low <= number <= high):
        raise argparse.ArgumentTypeError(f"{text!r}: expected an integer from {low} to {high}")
    return number
