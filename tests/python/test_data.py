"""Word lists: the one in the package, and the reader of text files."""

from __future__ import annotations

import os
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from burtorch import data


def test_the_default_words_are_many_plain_and_distinct():
    words = data.default_words()
    assert len(words) >= 1200
    assert words == sorted(set(words))
    assert all(word.isascii() and word.isalpha() and word.islower() for word in words)


def test_order_and_repetitions_are_kept(tmp_path):
    path = tmp_path / "words.txt"
    path.write_text("b\n\n a \nb", encoding="utf-8")
    assert data.read_words(path) == ["b", "a", "b"]


@given(content=st.binary(max_size=200) | st.text(max_size=200).map(lambda text: text.encode("utf-8", "surrogatepass")))
def test_any_file_gives_clean_words_or_a_value_error(tmp_path_factory, content):
    path = tmp_path_factory.getbasetemp() / "any.txt"
    path.write_bytes(content)
    try:
        words = data.read_words(path)
    except ValueError as error:
        assert "expected" in str(error)  # noqa: PT017 (either outcome is right)
    else:
        assert words
        assert all(word == word.strip() != "" and "\n" not in word for word in words)


def test_a_missing_file_is_an_os_error(tmp_path):
    with pytest.raises(FileNotFoundError):
        data.read_words(tmp_path / "nowhere")


@pytest.mark.parametrize("read", [data.read_text, data.read_words])
@pytest.mark.parametrize("kind", [int, bool, float])
def test_an_open_file_is_refused_and_stays_open(tmp_path, read, kind):
    path = tmp_path / "any"
    path.write_text("a\nb\n")
    with open(path, "rb") as file:
        number = file.fileno() if kind is int else kind(1)
        with pytest.raises(TypeError, match=f"expected str, bytes or os.PathLike object, not {kind.__name__}"):
            read(number)
        os.fstat(int(number))
        assert file.read() == b"a\nb\n"


@pytest.mark.parametrize(
    ("content", "found"),
    [(b"\xff\xfe\x00", "line 1 contains a NUL byte"), (b"a\nb\xff", r"line 2 is not UTF-8 \(byte 0xff\)")],
)
def test_an_error_expects_words_only_of_a_file_of_words(tmp_path, content, found):
    path = tmp_path / "any"
    path.write_bytes(content)
    with pytest.raises(ValueError, match=f"^{re.escape(str(path))}: {found}.* expected UTF-8 text$"):
        data.read_text(path)
    with pytest.raises(ValueError, match=f"^{re.escape(str(path))}: {found}.* text with one word per line$"):
        data.read_words(path)


@pytest.mark.parametrize("content", [b"", b"a\x07b", b"a" * 1001])
def test_every_error_names_the_file(tmp_path, content):
    path = tmp_path / "any"
    path.write_bytes(content)
    for given_path in (path, str(path), bytes(path)):
        with pytest.raises(ValueError, match=f"^{re.escape(str(path))}: "):
            data.read_words(given_path)
    if not content:
        with pytest.raises(ValueError, match=f"^{re.escape(str(path))}: no text"):
            data.read_text(path)


@pytest.mark.skipif(not os.path.exists("/dev/zero"), reason="the device does not exist here")
@pytest.mark.parametrize("read", [data.read_text, data.read_words])
def test_an_endless_device_is_refused_at_once(read):
    with pytest.raises(ValueError, match="NUL"):
        read("/dev/zero")


def test_text_longer_than_the_first_look_is_whole(tmp_path):
    text = "to be, or not\n" * 10_000
    (tmp_path / "play").write_text(text, encoding="utf-8")
    assert data.read_text(tmp_path / "play") == text
