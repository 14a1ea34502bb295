"""Word lists: the one in the package, and a reader of text files with one word per line.

The reader returns clean data: non-empty words without control characters, none longer than
``MAX_WORD_LENGTH``. Any other content is a ``ValueError`` that names the file and the line. It knows nothing of
models.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    import os

__all__ = ["MAX_WORD_LENGTH", "default_words", "read_text", "read_words"]


def __dir__() -> list[str]:
    return sorted({*__all__, *(name for name in globals() if name.startswith("__"))})


MAX_WORD_LENGTH = 1000
"""The longest line that :func:`read_words` accepts, in characters."""

_SNIFFED_BYTES = 1 << 16


def default_words() -> list[str]:
    """The words in the package: given names and names of places, lower-case ASCII.

    >>> from burtorch.data import default_words
    >>> words = default_words()
    >>> len(words) >= 1200, words == sorted(set(words))
    (True, True)
    """
    from importlib.resources import files

    return files("burtorch.data").joinpath("words.txt").read_text(encoding="ascii").split()


def read_words(path: str | os.PathLike[str]) -> list[str]:
    """The words of a UTF-8 text file, one per line, in the order of the file. Blank lines are skipped.

    Raises:
        OSError: the file cannot be read.
        TypeError: the path is not text or a path object, for example the number of an open file.
        ValueError: the file is binary or not UTF-8, contains a control character or no words, or has a line
            of more than ``MAX_WORD_LENGTH`` characters.
    """
    content = _decoded(path, "UTF-8 text with one word per line")
    lines = [line.strip() for line in content.split("\n")]
    for number, line in enumerate(lines, start=1):
        if len(line) > MAX_WORD_LENGTH or not line.isprintable():
            _check(path, number, line)
    words = [line for line in lines if line]
    if not words:
        raise _bad(path, "no words: expected UTF-8 text with one word per line")
    return words


def read_text(path: str | os.PathLike[str]) -> str:
    """The characters of a UTF-8 text file, line breaks as ``"\\n"``.

    Raises:
        OSError: the file cannot be read.
        TypeError: the path is not text or a path object, for example the number of an open file.
        ValueError: the file is binary, not UTF-8, or empty.

    Example:
        >>> import pathlib, tempfile
        >>> from burtorch.data import read_text
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     path = pathlib.Path(folder) / "play.txt"
        ...     _ = path.write_bytes(b"to be,\\r\\nor not\\r\\n")
        ...     read_text(path)
        'to be,\\nor not\\n'
    """
    text = _decoded(path, "UTF-8 text").replace("\r\n", "\n").replace("\r", "\n")
    if not text:
        raise _bad(path, "no text: the file is empty")
    return text


def _bad(path: str | os.PathLike[str], why: str) -> ValueError:
    import os

    return ValueError(f"{os.fsdecode(path)}: {why}")


def _content(path: str | os.PathLike[str]) -> bytes:
    import os

    # open() would take an integer for an open file, and close it.
    with open(os.fspath(path), "rb") as file:
        content = file.read(_SNIFFED_BYTES)
        if b"\0" not in content:  # a device such as /dev/zero never ends
            content += file.read()
    return content


def _decoded(path: str | os.PathLike[str], expected: str) -> str:
    content = _content(path)
    nul = content.find(b"\0")
    if nul >= 0:
        line = content.count(b"\n", 0, nul) + 1
        raise _bad(path, f"line {line} contains a NUL byte, so this is not text: expected {expected}")
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = error.object.count(b"\n", 0, error.start) + 1
        byte = error.object[error.start]
        raise _bad(path, f"line {line} is not UTF-8 (byte 0x{byte:02x}): expected {expected}") from None


def _check(path: str | os.PathLike[str], number: int, line: str) -> None:
    """Refuses a long line and control characters; other symbols that Python calls unprintable are allowed."""
    if len(line) > MAX_WORD_LENGTH:
        raise _bad(path, f"line {number} is {len(line)} characters long: expected at most {MAX_WORD_LENGTH}")
    for symbol in line:
        if symbol < " " or "\x7f" <= symbol < "\xa0":
            code = f"U+{ord(symbol):04X}"
            expected = "expected plain text with one word per line"
            raise _bad(path, f"line {number} contains the control character {code}: {expected}")
