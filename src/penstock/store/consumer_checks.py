"""Looking at the consumers of a stream: configurations, saved states, and whether they can be true.

A state that says more than its stream has, or an ack floor above what was delivered, was not
written so. What is damaged is told; the states that can be read are those a start would go on with.
"""

from penstock.core.consumer.snapshot import SPENT, unpack
from penstock.engine.consumer_states import SavedState
from penstock.engine.files import BadConsumer, ConsumerFile, StreamFiles
from penstock.store.reports import LOST, WORN, ConsumerReport, Problem, StreamReport


def look_at_consumers(files: StreamFiles, report: StreamReport) -> None:
    """Add the stream's consumers, and what is wrong with them, to its report."""
    metas: list[ConsumerFile] = []
    said: list[str] = []
    for meta in files.consumers(said.append):
        if isinstance(meta, BadConsumer):
            path, _, reason = meta.why.partition(": ")
            repair = "none; the consumer has to be made again, or comes with a backup"
            report.add(Problem(kind=LOST, file=path, reason=reason, repair=repair))
        else:
            metas.append(meta)
    tell_mended(said, report)
    starts = {(meta.name, meta.created): meta.start_seq for meta in metas}
    for text in files.states.load(starts):
        path, _, reason = text.partition(": ")
        repair = "put right if one bit is flipped; else the next start goes on with the others"
        report.add(Problem(kind=WORN, file=path, reason=reason, repair=repair))
    for meta in metas:
        found = files.states.found.get((meta.name, meta.created))
        report.consumers.append(_one(files, meta, found, report))


def tell_mended(said: list[str], report: StreamReport) -> None:
    """What was damaged in configuration files, and is known all the same: from their copies, or
    because one flipped bit was all.
    """
    for text in said:
        path, _, reason = text.partition(" was ")
        what = reason.partition(":")[0].strip() or "damaged"
        reason = f"it was {what}; what it says is known all the same"
        repair = "made again, by the next start too"
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
        repair = "none: it starts anew, and delivers again what it had delivered"
        report.add(Problem(kind=LOST, file=where, reason=str(error), repair=repair))
        return told
    told.delivered, told.delivered_seq = numbers[0], numbers[1]
    told.ack_floor, told.ack_floor_seq = numbers[4], numbers[5]
    told.unacknowledged = sum(entry[4] != SPENT for entry in entries)
    for wrong in _implausible(told, report.last_seq):
        repair = "none: a start goes on with it as far as it can"
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
