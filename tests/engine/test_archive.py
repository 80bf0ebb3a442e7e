"""Tar archives in pieces, compared with the standard library's."""

import tarfile
from io import BytesIO

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pelton.engine.backups import archive
from pelton.engine.backups.archive import ArchiveError, Entry, Piece, Reader

names = st.text("abc/_-é%", min_size=1, max_size=130).filter(lambda n: not n.startswith("/"))
files = st.dictionaries(names.map(lambda n: n.strip("/") or "x"), st.binary(max_size=2000))


def read(data: bytes, cut: int = 1 << 20) -> dict[str, bytes]:
    reader, found, name = Reader(), {}, ""
    for at in range(0, len(data), cut):
        for part in reader.feed(data[at : at + cut]):
            if isinstance(part, Entry):
                name = part.name
                found[name] = b""
            else:
                assert isinstance(part, Piece)
                found[name] += part.data
    assert reader.ended
    return found


@given(files)
def test_others_read_what_is_written(content: dict[str, bytes]) -> None:
    data = b"".join(
        archive.head(name, len(each), 5) + each + archive.padding(len(each))
        for name, each in content.items()
    )
    with tarfile.open(fileobj=BytesIO(data + archive.END)) as tar:
        found = {info.name: getattr(tar.extractfile(info), "read", bytes)() for info in tar}
    assert found == content


@given(files, st.sampled_from([tarfile.PAX_FORMAT, tarfile.USTAR_FORMAT]), st.integers(1, 700))
def test_what_others_write_is_read_however_it_is_cut(
    content: dict[str, bytes], form: int, cut: int
) -> None:
    out = BytesIO()
    if form == tarfile.USTAR_FORMAT:
        content = {name[:90]: each for name, each in content.items()}
    with tarfile.open(fileobj=out, mode="w", format=form) as tar:
        for name, each in content.items():
            info = tarfile.TarInfo(name)
            info.size = len(each)
            info.mtime = 1.5  # makes an extended header
            tar.addfile(info, BytesIO(each))
    with tarfile.open(fileobj=BytesIO(out.getvalue())) as tar:
        content = {info.name: content[info.name] for info in tar}
    assert read(out.getvalue(), cut) == content


@pytest.mark.parametrize(
    "kind", [tarfile.DIRTYPE, tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.FIFOTYPE, tarfile.CHRTYPE]
)
def test_what_is_no_file_is_refused(kind: bytes) -> None:
    info = tarfile.TarInfo("x")
    info.type, info.linkname = kind, "/etc/passwd"
    with pytest.raises(ArchiveError, match="unexpected content"):
        read(info.tobuf() + archive.END)


@given(st.binary(max_size=1600), st.integers(1, 600))
def test_garbage_is_refused(data: bytes, cut: int) -> None:
    reader = Reader()
    data = data.ljust(512, b"x")
    try:
        for at in range(0, len(data), cut):
            list(reader.feed(data[at : at + cut]))
    except ArchiveError:
        return
    assert data[:512] == bytes(512)  # zeros end an archive


@pytest.mark.parametrize(
    "said", [b"5", b"99 path=a\n", b"9 path=ab", b"x path=a\n", b"12 size=abc\n", b"12 size=-12\n"]
)
def test_extensions_that_are_none_are_refused(said: bytes) -> None:
    info = tarfile.TarInfo("PaxHeaders.0/x")
    info.type, info.size = tarfile.XHDTYPE, len(said)
    data = info.tobuf() + said.ljust(512, b"\0") + tarfile.TarInfo("x").tobuf()
    with pytest.raises(ArchiveError, match="invalid tar header"):
        read(data)


def test_an_archive_that_is_cut_is_not_whole() -> None:
    data = archive.head("a", 700, 0) + bytes(range(250)) * 2
    for end in (100, 512, 600, len(data)):
        reader = Reader()
        list(reader.feed(data[:end]))
        assert not reader.ended
