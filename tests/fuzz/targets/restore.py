"""STREAM.RESTORE of any archive, over a whole server in memory: it is answered, refused or there, and serves; nothing is left behind.

The archive is compressed and, for blocks of messages, its checksums are set right on the way, so that its contents count.
"""

from __future__ import annotations

import json
import tarfile
from collections.abc import Iterable
from functools import cache
from io import BytesIO
from pathlib import Path
from typing import Any

from pelton.core.base.disk import PyDisk
from tests.engine.backups import backup, packed, unpacked
from tests.engine.house import House
from tests.fuzz.inputs import Input
from tests.fuzz.memory_disk import MemoryDisk
from tests.fuzz.targets.backup import WORDS as BACKUP_WORDS
from tests.fuzz.targets.backup import entry, sealed_records

MAX_BYTES = 3500
WORDS = (
    *BACKUP_WORDS,
    b'"delivered":{"consumer_seq":5,"stream_seq":9}',
    b'"pending":{"3":{"Sequence":3,"Timestamp":1}}',
    b'"redelivered":{"4":2}',
)
CONFIG = {"name": "S", "subjects": ["s.>"], "allow_msg_ttl": True}
META = b'{"name":"S","subjects":["s.>"],"allow_msg_ttl":true,"created":"2023-11-14T22:13:20Z"}'
CONSUMER = b'{"name":"c","durable_name":"c","ack_policy":"explicit","deliver_policy":"all","max_deliver":3,"ack_wait":1000000000}'
BLOCK, META_FILE, STATE, META_OF_CONSUMER, OTHER = range(5)


def run(data: bytes) -> None:
    """Byte 0: what kind of archive; then its files."""
    source = Input(data)
    kind = source.number()
    archive = entries(source) if kind & 1 else tar(source)
    disk = MemoryDisk()
    house = House(Path("store"), disk=PyDisk(disk))
    begun = house.ok("STREAM.RESTORE.S", {"config": CONFIG, "state": {}})
    subject, stream = begun["deliver_subject"], packed(archive)
    said = give(house, subject, stream, 100 + 40 * (kind >> 1))
    house.pass_time(7_000_000_000, 1_000_000_000)  # a restore that stalls is given up
    assert not house.server.errors, house.server.errors
    assert not any("restoring/" in name for name in disk.files), disk.files.keys()
    names = house.ok("STREAM.NAMES")["streams"] or []
    if said is None or "error" in said:
        assert names == [], said
        return
    assert names == ["S"]
    use(house)


def give(house: House, subject: str, stream: bytes, chunk: int) -> Any:
    for at in [*range(0, len(stream), chunk), len(stream)]:
        answers = house.request(subject, stream[at : at + chunk])
        if not answers:
            return None
        if answers[0][1]:
            return json.loads(answers[0][1])
    return None


def use(house: House) -> None:
    for each in house.ok("CONSUMER.LIST.S")["consumers"] or []:
        assert each["ack_floor"]["stream_seq"] <= each["delivered"]["stream_seq"], each
        for _ in range(3):
            house.pull(4, each["name"])
            house.pass_time(2_000_000_000, 1_000_000_000)
    house.publish("s.new")
    state = house.ok("STREAM.INFO.S", {"subjects_filter": ">"})["state"]
    assert sum(state.get("subjects", {}).values()) == state["messages"], state
    assert not house.server.errors, house.server.errors
    again = house.restart().ok("STREAM.INFO.S")["state"]
    assert again["last_seq"] == state["last_seq"]


def tar(source: Input) -> bytes:
    """u8 which file, u16 length, content."""
    files: dict[str, bytes] = {}
    while source and len(files) < 12:
        which, content = source.number() % 5, source.sized(2000)
        if which == BLOCK:
            content = sealed_records(content)
        name = (
            f"msgs/{1 + sum(n.endswith('blk') for n in files)}.blk",
            "meta.inf",
            "obs/c/o.dat",
            "obs/c/meta.inf",
            "msgs/index.db",
        )[which]
        files[name] = content or {META_FILE: META, META_OF_CONSUMER: CONSUMER}.get(which, b"")
    from pelton.engine.backups.nats_files import checksum

    for name in [name for name in files if name.endswith("meta.inf")]:
        owner = "S" if name == "meta.inf" else "S/c"
        files[name.replace(".inf", ".sum")] = checksum(owner, files[name])
    out = BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=tarfile.PAX_FORMAT) as archive:
        for name in sorted(files, key=lambda name: (not name.startswith("meta"), name)):
            info = tarfile.TarInfo(name)
            info.size = len(files[name])
            archive.addfile(info, BytesIO(files[name]))
    return out.getvalue()


def entries(source: Input) -> bytes:
    """The newer archive; as it comes, or made of pieces."""
    if source.number() & 1:
        return b"NATSARC1" + source.rest()
    out = b"NATSARC1"
    out += entry(
        b"state.json",
        0,
        0,
        b"",
        source.sized(200) or b'{"first_seq":1,"last_seq":9,"consumer_count":1}',
    )
    while source and len(out) < 3000:
        seq, headers, body = source.number(2), source.sized(60), source.sized(60)
        out += entry(b"s.%d" % (seq % 3), seq, 5, headers, body) if seq & 32767 else consumer(body)
    return out + bytes(5)


def consumer(state: bytes) -> bytes:
    return entry(b"consumers/c", 0, 0, b"", b'{"config":%s,"state":{%s}}' % (CONSUMER, state))


@cache
def sample() -> dict[str, bytes]:
    """The files of a backup of our own."""
    house = House(Path("store"), disk=PyDisk(MemoryDisk()))
    house.ok("STREAM.CREATE.S", CONFIG)
    house.consumer("c", durable_name="c", ack_policy="explicit", max_deliver=3)
    for n in range(6):
        house.publish(f"s.{n % 2}", b"body %d" % n)
    house.pull(3)
    house.ok("STREAM.MSG.DELETE.S", {"seq": 2})
    _, data = backup(house)
    with tarfile.open(fileobj=BytesIO(unpacked(data))) as archive:
        return {info.name: archive.extractfile(info).read() for info in archive}  # type: ignore[union-attr] # a file


def seeds() -> Iterable[bytes]:
    def file(which: int, content: bytes) -> bytes:
        return bytes([which]) + len(content).to_bytes(2, "little") + content

    found = sample()
    blocks = file(BLOCK, found.get("msgs/1.blk", b""))
    consumers = file(META_OF_CONSUMER, b"") + file(STATE, found.get("obs/c/o.dat", b""))
    for kind in (0, 6, 200):
        yield (
            bytes([kind])
            + file(META_FILE, b"")
            + blocks
            + consumers
            + file(OTHER, found.get("msgs/index.db", b""))
        )
        yield bytes([kind]) + file(META_FILE, b"") + consumers
    state = b'"delivered":{"consumer_seq":2,"stream_seq":2},"ack_floor":{"consumer_seq":1,"stream_seq":1},"pending":{"2":{"Sequence":2,"Timestamp":1}}'
    for kind in (1, 9):
        yield (
            bytes([kind, 0, 0])
            + b"\1\0\0\2hi"
            + b"\2\0\0\1x"
            + b"\0\0\0"
            + bytes([min(len(state), 60)])
            + state[:60]
        )
        whole = entry(b"state.json", 0, 0, b"", b'{"first_seq":1,"last_seq":9,"consumer_count":1}')
        whole += (
            entry(b"s.a", 3, 5, b"", b"x")
            + entry(b"s.a", 9, 5, b"NATS/1.0\r\nNats-TTL: never\r\n\r\n", b"x")
            + consumer(state)
            + bytes(5)
        )
        yield bytes([kind, 1]) + whole
