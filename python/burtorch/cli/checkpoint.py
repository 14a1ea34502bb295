"""Checkpoints of ``burtorch train``: a file from which training continues bit for bit.

A checkpoint contains the options, the parameters, the states of the optimiser and of the batches, and the losses and
times of all steps so far. It is replaced completely or not at all, so a kill at any moment leaves a usable one.
"""

from __future__ import annotations

import os
from array import array
from typing import TYPE_CHECKING, Any

from burtorch import FormatError, _core
from burtorch.cli.errors import InputError, reason

if TYPE_CHECKING:
    import argparse

    from burtorch.cli.train import Training
    from burtorch.cli.trainer import Course

NAME = "checkpoint.burtorch"
VERSION = 1


def save(folder: str, training: Training, course: Course, kept: dict[str, Any]) -> None:
    """Replaces the checkpoint in ``folder``; ``kept`` are the options as JSON data."""
    import json

    pieces = [
        ("options", json.dumps({"version": VERSION, **kept}).encode("utf-8")),
        ("parameters", training.parameters.to_bytes()),
        ("optimiser", training.optimizer.save_state()),
        ("data", training.data.save_state()),
        ("losses", _little_endian(course.losses)),
        ("seconds", _little_endian(course.seconds)),
    ]
    _core._save_bytes(os.path.join(folder, NAME), _core._bundle(pieces))


class Checkpoint:
    """The content of a checkpoint. Raises ``InputError`` if it is missing or damaged."""

    def __init__(self, folder: str) -> None:
        import json

        self.path = os.path.join(folder, NAME)
        try:
            pieces = dict(_core._unbundle(self.path))
            self.options = json.loads(pieces.pop("options"))
            self.states = {name: pieces.pop(name) for name in ("parameters", "optimiser", "data")}
            self.losses, self.seconds = (_numbers(pieces.pop(name)) for name in ("losses", "seconds"))
        except OSError as error:
            raise InputError(f"{self.path}: {reason(error)}: expected the --out of an unfinished training") from None
        except (FormatError, KeyError, ValueError) as error:
            raise InputError(f"{self.path}: {error}") from None
        if not isinstance(self.options, dict) or self.options.pop("version", None) != VERSION:
            raise InputError(f"{self.path}: another version of burtorch wrote it")

    def restore_options(self, args: argparse.Namespace) -> list[str]:
        """Restores the options of the training except a given number of steps; returns given options that differ."""
        ignored = []
        for name, value in self.options.items():
            if not hasattr(args, name):
                raise InputError(f"{self.path}: option {name!r} is unknown to this version of burtorch")
            given = getattr(args, name)
            if name == "steps" and given is not None:
                continue
            if name == "data" and given is not None:
                given = os.path.abspath(given)
            if given is not None and given != value:
                flag = f"--{name.replace('_', '-')}"
                ignored.append(f"{flag} (off)" if given is True else f"{flag} {given} (it is {value})")
            setattr(args, name, value)
        return ignored

    def restore(self, training: Training, course: Course) -> None:
        """Restores the state of the checkpoint in a new training."""
        try:
            training.parameters.load(self.states["parameters"])
            training.optimizer.load_state(self.states["optimiser"])
            training.data.load_state(self.states["data"])
        except FormatError as error:
            raise InputError(f"{self.path}: {error}") from None
        course.losses.extend(self.losses)
        course.seconds.extend(self.seconds)


def _little_endian(numbers: array[float]) -> bytes:
    import sys

    if sys.byteorder == "big":
        numbers = array("d", numbers)
        numbers.byteswap()
    return numbers.tobytes()


def _numbers(content: bytes) -> array[float]:
    import sys

    numbers = array("d")
    numbers.frombytes(content)
    if sys.byteorder == "big":
        numbers.byteswap()
    return numbers
