"""Archives of a few kilobytes that decompress to gigabytes, all for a stream S. None is a valid
backup.
"""

import tarfile
from collections.abc import Iterator
from functools import cache

from pelton.core.base.buffer import crc32c_of
from pelton.engine.backups import archive
from pelton.engine.backups.nats_files import checksum
from tests.core.stream.test_backup import END, entry, number

MIB = 1 << 20
BLOCK = 4 * MIB
META = b'{"name":"S","subjects":["s.>"],"created":"2023-11-14T22:13:20Z"}'
CONSUMER = b'{"name":"c0","durable_name":"c0","ack_policy":"explicit","deliver_policy":"all"}'
STATE = b'{"first_seq":1,"last_seq":9,"consumer_count":40}'


def bombs() -> dict[str, bytes]:
    """Return the archives by the part that they make large."""
    opening = b'{"config":%s,"state":{"pending":{' % CONSUMER
    often, ending = 1_000_000, b'"1":{}}}}'
    many = len(opening) + 7 * often + len(ending)
    size = 60 * MIB
    return {
        "states": tar(*(file(f"obs/c{n}/o.dat", 250 * MIB) for n in range(6))),
        "index.db": tar(file("msgs/index.db", 250 * MIB)),
        "configurations": tar(*(file(f"obs/c{n}/meta.inf", MIB) for n in range(300))),
        "the stream's configuration": tar(file("meta.inf", 250 * MIB)),
        "errors.txt": tar(file("errors.txt", 100 * MIB)),
        "a record": tar(
            file("meta.inf", META), file("msgs/1.blk", ((b"\xff\xff\xff\3", 1), (b"\0", size)))
        ),
        "extended headers": tar(*(extended(n) for n in range(200))),
        "a state that names many": consumer((b"\x16\2\1\1\1\1" + b"\xff" * 8 + b"\1", 1)),
        "a state that names one often": consumer(
            (b"\x16\2\1\1" + 3 * number(3_000_000) + b"\2", 1), (b"\1\1\0", 3_000_000)
        ),
        "newer, consumers": newer((begin(b"consumers/c", 0, size), 1), (b"\0", size)),
        "newer, a state": newer(
            (begin(b"consumers/c", 0, many) + opening, 1),
            (b'"1":{},', often),
            (ending + END, 1),
            count=1,
        ),
        "newer, a message": newer((begin(b"s.1", 1, size), 1), (b"\0", size)),
        "newer, its state": compressed(
            (b"NATSARC1" + begin(b"state.json", 0, size), 1), (b"\0", size)
        ),
    }


def half_a_record(stream: str, size: int) -> bytes:
    """Return the beginning of a stream's backup, with so many bytes of a record that is longer."""
    meta = META.replace(b'"S"', b'"%s"' % stream.encode())
    record = ((b"\xff\xff\xff\3", 1), (b"\0", 50 * MIB))
    (head, _), *rest, _ = file("msgs/1.blk", record)
    begun = ((b"\xff\xff\xff\3", 1), (b"\0", size))
    assert rest == list(record)
    return tar(file("meta.inf", meta), [(head, 1), *begun])


def begin(name: bytes, seq: int, size: int) -> bytes:
    """Return the head of an entry with so many bytes."""
    return number(len(name)) + number(2) + number(seq) + number(0) + number(size) + name


def newer(*parts: tuple[bytes, int], count: int = 40) -> bytes:
    state = STATE.replace(b"40", b"%d" % count)
    return compressed((b"NATSARC1" + entry(b"state.json", 1, 0, b"", state), 1), *parts)


def consumer(*state: tuple[bytes, int]) -> bytes:
    """Return a backup with one consumer, complete except for the consumer's state."""
    return tar(
        file("meta.inf", META),
        file("meta.sum", checksum("S", META)),
        file("obs/c0/meta.inf", CONSUMER),
        file("obs/c0/meta.sum", checksum("S/c0", CONSUMER)),
        file("obs/c0/o.dat", state),
        [(archive.END, 1)],
    )


def file(
    name: str, content: int | bytes | tuple[tuple[bytes, int], ...]
) -> list[tuple[bytes, int]]:
    """Return a file of a tar archive; a number stands for so many zeros."""
    if isinstance(content, int):
        content = ((b"\0", content),)
    elif isinstance(content, bytes):
        content = ((content, 1),)
    size = sum(len(data) * times for data, times in content)
    return [(archive.head(name, size, 0), 1), *content, (archive.padding(size), 1)]


def extended(which: int) -> list[tuple[bytes, int]]:
    """Return a header of almost a MiB that adds one value for the next file."""
    size = MIB - 512
    info = tarfile.TarInfo("x")
    info.size, info.type = size, tarfile.XHDTYPE
    lead = b"%d k%d=" % (size, which)
    return [
        (info.tobuf(tarfile.USTAR_FORMAT), 1),
        (lead, 1),
        (b"v", size - len(lead) - 1),
        (b"\n", 1),
    ]


def tar(*files: list[tuple[bytes, int]]) -> bytes:
    return compressed(*(part for each in files for part in each))


# -- compressing repetitions as far as the format allows ----------------------------------------


def compressed(*parts: tuple[bytes, int]) -> bytes:
    """Return a stream of blocks with each part repeated so many times."""
    out = [b"\xff\x06\0\0S2sTwO"]
    for data, times in parts:
        if times == 1:
            out += [plain(data[at : at + 65536]) for at in range(0, len(data), 65536)]
            continue
        whole, rest = divmod(times, BLOCK // len(data))
        out += [repeated(data, BLOCK // len(data))] * whole
        if rest:
            out.append(repeated(data, rest))
    return b"".join(out)


def plain(data: bytes) -> bytes:
    return framed(1, data, data)


@cache
def repeated(data: bytes, times: int) -> bytes:
    """Return a block: the bytes, then a copy from one length before, as long as the format allows."""
    size = len(data) * times
    block = number(size) + bytes([(len(data) - 1) << 2]) + data
    left = size - len(data)
    if left >= 4 + 65540:
        block += bytes([(4 - 4) << 2 | 1, len(data)])  # a short copy, with its distance
        left -= 4
        block += bytes([7 << 2 | 1, 0]) + (left - 65540).to_bytes(3, "little")
    else:
        for n in pieces(left):
            block += bytes([(n - 1) << 2 | 2]) + len(data).to_bytes(2, "little")
    return framed(0, block, data * times)


def pieces(left: int) -> Iterator[int]:
    while left:
        yield min(left, 64)
        left -= min(left, 64)


def framed(kind: int, content: bytes, holds: bytes) -> bytes:
    crc = crc32c_of(holds)
    masked = ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF
    body = masked.to_bytes(4, "little") + content
    return bytes([kind]) + len(body).to_bytes(3, "little") + body
