"""Messages of the command line on stderr: the exception that becomes a line and exit code 2, and notes."""

import os
import sys
from typing import TextIO

UNUSABLE = (FileNotFoundError, NotADirectoryError, IsADirectoryError, PermissionError)
"""The errors of a path that an option names and that cannot be used, unlike those of a full disk."""


class InputError(Exception):
    """Unusable input. The message says what was found and what was expected."""


def reason(error: OSError) -> str:
    """The message of the operating system, without Python's ``[Errno 2]`` in front."""
    return error.strerror or str(error)


def say(message: str) -> None:
    """Writes a line on stderr; if that fails, as on a full disk, the command continues without it."""
    try:
        print(message, file=sys.stderr, flush=True)
    except OSError:
        discard(sys.stderr)


def discard(stream: TextIO) -> None:
    """Discards everything written to the stream from now on."""
    null = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, stream.fileno())
    os.close(null)
