"""Where tables continue without the checkpoint of their query: after the last message that they
hold.

A checkpoint may be lost, and a back-fill has none. The raw table has every message with its
sequence, and is the first table that gets a batch. Other tables may lack the last batch, so it is
made again from its raw rows, with the same mark: a table that holds it changes nothing.
"""

from __future__ import annotations

import uuid
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow.compute as pc

from pelton.spark.tables.places import TableError

from ..tables.batch import MESSAGES
from ..tables.schemas import RAW
from .buckets import Job, write_bucket

if TYPE_CHECKING:
    from datetime import datetime
    from pathlib import Path

    from .lake import Lake


@dataclass(frozen=True)
class Place:
    """The last message that tables hold."""

    stream: str
    seq: int
    received: datetime


def is_fresh(checkpoint: Path) -> bool:
    """Whether a checkpoint in a folder knows no position."""
    return not any(each.name.isdigit() for each in (checkpoint / "offsets").glob("*"))


def finish_last_batch(lake: Lake) -> Place | None:
    """Commit the last batch to every table that lacks it; returns where the tables end, None without rows."""
    if not lake.files(RAW.name):
        return None
    mark, rows = lake.newest(RAW)
    rows = rows.select(MESSAGES.names).cast(MESSAGES)
    begun = lake.begin(mark)
    prefix = f"{mark.name}-{mark.number:09}-{uuid.uuid4().hex[:8]}"
    job = Job(lake.targets, begun.held, lake.settings, prefix)
    reports = []
    for bucket in sorted(rows["bucket"].unique().to_pylist()):
        mine = rows.filter(pc.equal(rows["bucket"], bucket)).combine_chunks()
        reports.append(write_bucket(job, bucket, mine))
    lake.commit(begun, reports)
    last = rows.slice(pc.index(rows["seq"], pc.max(rows["seq"])).as_py(), 1).to_pylist()[0]
    return Place(last["stream"], last["seq"], last["received"])


def begin_behind(place: Place, stream: str, born: datetime, last_seq: int) -> str:
    """The starting offset behind a place; ``born`` is when the stream was made, ``last_seq`` its last message.

    :class:`TableError` if the tables are not of this stream as it is now.
    """
    if place.stream != stream:
        raise TableError(f"the tables have messages of the stream {place.stream}, not of {stream}")
    if born > place.received or last_seq < place.seq:
        raise TableError(
            f"the tables have messages of another stream {stream}, up to sequence {place.seq}: this one was made"
            f" at {born:%Y-%m-%dT%H:%M:%SZ} and ends at {last_seq}. Fill new tables with it"
        )
    return str(place.seq + 1)
