"""Sources of objects: whatever the pieces are, the chunks are the same; and targets that are files."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pelton.client.aio.objecttransfers import read_chunks
from pelton.client.objects.sources import FileSource, PathTarget, make_source, write_all

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


class Direct:
    """A client whose calls do at once what others wait for."""

    async def _work(self, function: Callable[[], Any], *, finishes: bool = True) -> Any:
        return function()

    async def _awaited(self, awaitable: Any) -> Any:
        return await awaitable


CLIENT: Any = Direct()


def result_of(coroutine: Any) -> Any:
    """The result of a coroutine that waits for nothing."""
    try:
        coroutine.send(None)
    except StopIteration as stop:
        return stop.value
    raise AssertionError("it waits for something")


def chunks_of(content: Any, size: int) -> list[bytes]:
    source = make_source(content, size)
    if isinstance(source, FileSource):
        source.open()
    found: list[bytes] = []
    while chunks := result_of(read_chunks(CLIENT, source)):
        found += [bytes(chunk) for chunk in chunks]
    if isinstance(source, FileSource):
        source.close()
    return found


class Slow(io.RawIOBase):
    """A file that gives as many bytes at a time as it likes."""

    def __init__(self, pieces: list[bytes]) -> None:
        self.pieces = [piece for piece in pieces if piece]

    def read(self, size: int = -1) -> bytes:
        if not self.pieces:
            return b""
        piece = self.pieces.pop(0)
        if len(piece) > size:
            self.pieces.insert(0, piece[size:])
        return piece[:size]


class Reader:
    def __init__(self, pieces: list[bytes]) -> None:
        self.file = Slow(pieces)

    async def read(self, size: int) -> bytes:
        return self.file.read(size)


class Refilled:
    """An iterator that gives the same buffer each time, as one that saves memory does."""

    def __init__(self, pieces: list[bytes]) -> None:
        self.pieces = pieces

    def __iter__(self) -> Any:
        buffer = bytearray()
        for piece in self.pieces:
            buffer[:] = piece
            yield buffer


@given(st.lists(st.binary(max_size=20), max_size=12), st.integers(1, 17))
def test_chunks_do_not_depend_on_the_pieces(pieces: list[bytes], size: int) -> None:
    whole = b"".join(pieces)
    expected = [whole[at : at + size] for at in range(0, len(whole), size)]

    async def later() -> Any:
        for piece in pieces:
            yield piece

    for content in (
        whole,
        bytearray(whole),
        io.BytesIO(whole),
        iter(pieces),
        Refilled(pieces),
        later(),
        Slow(pieces),
        Reader(pieces),
    ):
        assert chunks_of(content, size) == expected, content


def test_totals_are_known_where_they_can_be(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"0123456789")
    with path.open("rb") as file:
        file.read(4)
        source = make_source(file, 3)
        assert isinstance(source, FileSource)
        source.open()
        assert source.total == 6
        source.close()
        assert not file.closed
    source = make_source(path, 3)
    assert isinstance(source, FileSource)
    source.open()
    assert source.total == 10
    source.close()
    assert make_source(b"12345", 3).total == 5
    assert make_source(iter([b"1"]), 3).total is None


def test_a_file_in_text_mode_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_text("text")
    with path.open() as file, pytest.raises(TypeError, match="binary mode"):
        make_source(file, 3)


def test_targets(tmp_path: Path) -> None:
    class Short(io.BytesIO):
        def write(self, data: Any, /) -> int:
            return super().write(data[:3])

    file = Short()
    write_all(file, [b"0123456", b"", b"78"])
    assert file.getvalue() == b"012345678"
    target = PathTarget(tmp_path / "name", "id")
    target.open().write(b"1")
    assert not (tmp_path / "name").exists()
    target.keep()
    assert (tmp_path / "name").read_bytes() == b"1"
    other = PathTarget(tmp_path / "name", "id")
    other.drop()
    other.open().write(b"2")
    other.drop()
    assert [each.read_bytes() for each in tmp_path.iterdir()] == [b"1"]


def test_an_iterator_that_raises_the_end_of_another_kind_is_no_end() -> None:
    """An object that stops short of its end is not stored as if it were whole."""

    def broken() -> Any:
        yield b"begin"
        raise StopAsyncIteration

    with pytest.raises(StopAsyncIteration):
        result_of(read_chunks(CLIENT, make_source(broken(), 100)))
