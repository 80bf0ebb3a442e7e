"""A client that makes and restores backups, as the protocol's tools do."""

import json
import tarfile
from io import BytesIO
from typing import Any

from pelton.core.base.s2 import FrameReader, FrameWriter
from tests.engine.house import House


class Receiver:
    """Subscribes to a subject and acknowledges at most `acks` chunks, but not chunk `lost`."""

    def __init__(
        self,
        house: House,
        *,
        acks: int = 1 << 30,
        listen: bool = True,
        lost: int = 0,
        pattern: str = "backup",
    ) -> None:
        self.house = house
        self.acks = acks
        self.lost = lost
        self.pattern = pattern
        self.client = house.server.client()
        self.chunks: list[tuple[bytes, str]] = []  # payload, reply
        self.end: bytes | None = None  # headers of the empty message
        if listen:
            self.listen()

    def listen(self) -> None:
        self.client.send(f"SUB {self.pattern} 7\r\n")

    def take(self) -> "Receiver":
        """Read until no more messages come."""
        while events := self.client.events():
            for event in events:
                self._one(event)
        return self

    def acknowledge(self, index: int) -> None:
        """Return the number of a chunk, counted from 1."""
        reply = self.chunks[index - 1][1]
        self.client.send(f"PUB {reply} 0\r\n\r\n")

    def _one(self, event: Any) -> None:
        _, _, sid, reply, headers, payload = event
        if sid != 7:  # a message of another subscription
            return
        if not payload:
            self.end = headers
            return
        self.chunks.append((payload, reply))
        if reply and self.acks and len(self.chunks) != self.lost:
            self.acks -= 1
            self.client.send(f"PUB {reply} 0\r\n\r\n")

    def ask(self, stream: str = "S", **fields: Any) -> Any:
        return self.house.api(f"STREAM.SNAPSHOT.{stream}", {"deliver_subject": "backup", **fields})

    @property
    def data(self) -> bytes:
        return b"".join(payload for payload, _ in self.chunks)


def backup(house: House, stream: str = "S", **fields: Any) -> tuple[Any, bytes]:
    """Make a backup; return the first answer and the whole archive."""
    receiver = Receiver(house)
    answer = receiver.ask(stream, **fields)
    assert "error" not in answer, answer
    receiver.take()
    assert receiver.end is not None
    assert b"408" not in receiver.end
    assert b"500" not in receiver.end
    return answer, receiver.data


def restore(
    house: House, answer: Any, data: bytes, chunk_bytes: int = 65536, **changes: Any
) -> Any:
    """Restore a backup; return the answer to the empty chunk, or to the refused one."""
    config = {**answer["config"], **changes}
    name = config["name"]
    begun = house.api(f"STREAM.RESTORE.{name}", {"config": config, "state": answer["state"]})
    if "error" in begun:
        return begun
    subject = begun["deliver_subject"]
    for at in range(0, len(data), chunk_bytes):
        [(_, said)] = house.request(subject, data[at : at + chunk_bytes])
        if said:
            return json.loads(said)
    [(_, said)] = house.request(subject)
    return json.loads(said)


def unpacked(data: bytes) -> bytes:
    reader = FrameReader()
    reader.feed(data)
    out = b""
    while (block := reader.next()) is not None:
        out += block
    assert not reader.waiting
    return out


def packed(data: bytes, block_bytes: int = 262144) -> bytes:
    writer = FrameWriter(block_bytes)
    writer.put(data)
    writer.finish()
    return writer.take(len(writer))


def files_of(data: bytes) -> dict[str, bytes]:
    """Return the files of a tar backup, in order."""
    found = {}
    with tarfile.open(fileobj=BytesIO(unpacked(data))) as tar:
        for info in tar:
            file = tar.extractfile(info)
            assert file is not None
            found[info.name] = file.read()
    return found


def tar_of(files: dict[str, bytes], kind: bytes = tarfile.REGTYPE) -> bytes:
    out = BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=tarfile.PAX_FORMAT) as tar:
        for name, content in files.items():
            info = tarfile.TarInfo(name)
            info.size = len(content)
            info.type = kind
            tar.addfile(info, BytesIO(content))
    return packed(out.getvalue())


def stream_view(house: House, stream: str = "S") -> Any:
    """Return the state of a stream and its consumers as clients see it, without times that pass."""
    info = house.ok(f"STREAM.INFO.{stream}", {"deleted_details": True})
    state = info["state"]
    messages = {}
    for seq in range(max(state["first_seq"], 1), state["last_seq"] + 1):
        found = house.api(f"STREAM.MSG.GET.{stream}", {"seq": seq})
        messages[seq] = found.get("message")
    consumers = {}
    for each in house.ok(f"CONSUMER.LIST.{stream}")["consumers"]:
        del each["ts"]
        for part in ("delivered", "ack_floor"):
            each[part].pop("last_active", None)
        consumers[each["name"]] = each
    return info["config"], info["created"], state, messages, consumers
