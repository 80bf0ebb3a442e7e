"""Checks the consumers of a stream: their configurations and saved states.

A state is wrong when it names sequences that the stream does not have, or when its ack floor is
above the last delivered sequence. The checks use the states that a start would use, and report
damaged files. `repaired_states` is the checksum repair of a states file.
"""

from pelton.core.base.buffer import crc32c_of
from pelton.core.consumer.snapshot import SPENT, unpack
from pelton.core.log.checksum_repair import flipped_bit_of
from pelton.engine.files.consumer_states import STATE_MAGIC, SavedState
from pelton.engine.files.files import BadConsumer, ConsumerFile, StreamFiles
from pelton.store.reports import LOST, WORN, ConsumerReport, Problem, StreamReport

_HEAD_BYTES = 12


def look_at_consumers(files: StreamFiles, report: StreamReport) -> None:
    """Add the stream's consumers and their problems to its report."""
    metas: list[ConsumerFile] = []
    said: list[str] = []
    for meta in files.consumers(said.append):
        if isinstance(meta, BadConsumer):
            path, _, reason = meta.why.partition(": ")
            repair = "none; create the consumer again, or restore a backup"
            report.add(Problem(kind=LOST, file=path, reason=reason, repair=repair))
        else:
            metas.append(meta)
    tell_mended(said, report)
    starts = {(meta.name, meta.created): meta.start_seq for meta in metas}
    for text in files.states.load(starts):
        path, _, reason = text.partition(": ")
        repair = (
            "checksum repair if one bit is flipped; otherwise the next start uses the other files"
        )
        report.add(Problem(kind=WORN, file=path, reason=reason, repair=repair))
    for meta in metas:
        found = files.states.found.get((meta.name, meta.created))
        report.consumers.append(_one(files, meta, found, report))


def tell_mended(said: list[str], report: StreamReport) -> None:
    """Report damaged or missing configuration files that the copy or checksum repair restores."""
    for text in said:
        path, _, reason = text.partition(" was ")
        what = reason.partition(" and ")[0].strip() or "damaged"
        reason = f"the file was {what}; its copy has the content"
        repair = "restored; the next start does the same"
        report.add(Problem(kind=WORN, file=path, reason=reason, repair=repair))


def _one(
    files: StreamFiles, meta: ConsumerFile, found: SavedState | None, report: StreamReport
) -> ConsumerReport:
    told = ConsumerReport(name=meta.name)
    if found is None:
        return told
    where = f"{files.states.folder} (consumer {meta.name})"
    try:
        numbers, entries, _ = unpack(found.packed())
    except ValueError as error:
        repair = "none; the consumer starts from the beginning and delivers all its messages again"
        report.add(Problem(kind=LOST, file=where, reason=str(error), repair=repair))
        return told
    told.delivered, told.delivered_seq = numbers[0], numbers[1]
    told.ack_floor, told.ack_floor_seq = numbers[4], numbers[5]
    told.unacknowledged = sum(entry[4] != SPENT for entry in entries)
    for wrong in _implausible(told, report.last_seq):
        repair = "none; the next start uses the state as far as it can"
        report.add(Problem(kind=WORN, file=where, reason=wrong, repair=repair))
    return told


def _implausible(told: ConsumerReport, last_seq: int) -> list[str]:
    wrong = []
    if told.delivered_seq > last_seq:
        wrong.append(f"delivered up to {told.delivered_seq}, the stream ends at {last_seq}")
    if told.ack_floor_seq > max(told.delivered_seq, last_seq):
        wrong.append(f"ack floor {told.ack_floor_seq} is above what was delivered")
    if told.ack_floor > told.delivered:
        wrong.append(f"ack floor {told.ack_floor} is above the {told.delivered} deliveries")
    return wrong


def repaired_states(data: bytes) -> bytes | None:
    """Return the bytes of a states file after checksum repair of one flipped bit; None when the
    file is sound or has more damage. engine/files/consumer_states draws the format.
    """
    head, body = data[:_HEAD_BYTES], data[_HEAD_BYTES:]
    if len(head) < _HEAD_BYTES:
        return None
    stored = int.from_bytes(head[8:], "little")
    if crc32c_of(body) == stored:
        return STATE_MAGIC + data[8:] if _bits(head[:8], STATE_MAGIC) == 1 else None
    if head[:8] != STATE_MAGIC:
        return None
    bit = flipped_bit_of(body, stored)
    if bit < 0:
        return None
    if bit >= 8 * len(body):
        return STATE_MAGIC + crc32c_of(body).to_bytes(4, "little") + body
    fixed = bytearray(body)
    fixed[bit >> 3] ^= 1 << (bit & 7)
    return head + bytes(fixed)


def _bits(one: bytes, other: bytes) -> int:
    return (int.from_bytes(one, "little") ^ int.from_bytes(other, "little")).bit_count()
