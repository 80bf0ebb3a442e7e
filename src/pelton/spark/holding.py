"""Notes of the state of a target after a query's last batch, in the folder of the query's checkpoint.

A checkpoint has the position of a query; a table or stream has the rows. When one of the two is put
back from an older backup, is removed, or lies on a disk that is not mounted, the missing rows are
seen only by comparing both. So after each batch the driver notes the state of the target::

    <checkpoint>/pelton/<hash of the place>.json
    {"where": "/data/orders", "query": "5f...", "batch": 5}                       a table
    {"where": "stream BIG on ...", "born": "2026-...", "last": 4711, "batch": 5}  a stream

and compares it before the next batch. The driver writes a note after the commit, so a target may hold
more than its note says, never less. If a power cut destroys a note, one comparison is left out and
nothing else happens.

Notes are written only to checkpoints in folders of the driver's machine. Other checkpoints, such as
those in object stores, are reached through a file system in Spark's JVM, which writers cannot use.
With these, the marks of a table are compared instead: every batch leaves a mark, also one without
rows, so the mark of the previous batch must be there.

Does not depend on Spark's classes.
"""

from __future__ import annotations

import hashlib
import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import unquote, urlsplit

import msgspec

from pelton.spark.filling import FOLDER as _FOLDER
from pelton.spark.parsing import OptionError, Row, one_of

if TYPE_CHECKING:
    from collections.abc import Mapping

FAIL, BEGIN, FILL = "fail", "begin", "fill"
IF_BEHIND = Row(
    "ifBehind",
    "if_behind",
    one_of(FAIL, BEGIN, FILL),
    "What a query does whose table is gone or holds less than it did: fail, begin again there, or fill"
    " it with the rows between, read again.",
)


def _not_filled(text: str) -> str:
    if text.lower() == FILL:
        raise OptionError(
            f"{FAIL} or {BEGIN}: a stream or bucket does not say which batches of a query it holds, so"
            " missing batches are not known. Tables can be filled"
        )
    return one_of(FAIL, BEGIN)(text)


STREAM_IF_BEHIND = Row(
    "ifBehind",
    "if_behind",
    _not_filled,
    "What a query does whose target is gone or holds less than it did: fail, or begin again there.",
)


class Held(msgspec.Struct, frozen=True, omit_defaults=True):
    """The state of a target: ``batch`` of ``query`` (-1: no batch with rows yet).

    For a stream also the time of its creation and its last sequence.
    """

    where: str
    batch: int = -1
    query: str = ""
    born: str = ""
    last: int = 0


@dataclass(frozen=True)
class Memory:
    """The note of one target in one checkpoint; picklable. Without a checkpoint there are no notes."""

    checkpoint: Path | None
    where: str

    @property
    def known(self) -> bool:
        """Whether the checkpoint has a note of any target."""
        return self.checkpoint is not None and (self.checkpoint / _FOLDER).is_dir()

    @property
    def begun(self) -> bool:
        """Whether the query has committed a batch."""
        if self.checkpoint is None:
            return False
        return any(each.name.isdigit() for each in (self.checkpoint / "commits").glob("*"))

    def recall(self) -> Held | None:
        """The noted state of the target; None when there is no note."""
        try:
            held = msgspec.json.decode(self._path().read_bytes(), type=Held)
        except (OSError, ValueError, msgspec.MsgspecError):
            return None
        return held if held.where == self.where else None

    def note(self, held: Held) -> None:
        """Note the state of the target; after an error of the disk only the comparison is left out."""
        if self.checkpoint is None or held == self.recall():
            return
        path = self._path()
        draft = path.with_suffix(".draft")
        try:
            path.parent.mkdir(exist_ok=True)
            with draft.open("wb") as file:
                file.write(msgspec.json.encode(held))
                file.flush()
                os.fsync(file.fileno())
            draft.replace(path)
        except OSError:
            return

    def _path(self) -> Path:
        name = hashlib.blake2b(self.where.encode(), digest_size=8).hexdigest()
        return (self.checkpoint or Path()) / _FOLDER / f"{name}.json"


def memory_of(checkpoint: str | os.PathLike[str] | None, where: str) -> Memory:
    """The note of a target. ``checkpoint`` is a folder in Spark's form; Spark creates it."""
    return Memory(None if checkpoint is None else _local(os.fspath(checkpoint)), where)


def checkpoint_given(options: Mapping[str, str]) -> str | None:
    """The checkpoint among the options that Spark gives to a sink."""
    found = (value for name, value in options.items() if name.lower() == "checkpointlocation")
    return next(found, None)


def _local(text: str) -> Path | None:
    if "://" in text or text.startswith("file:"):
        parts = urlsplit(text)
        if parts.scheme != "file":
            return None
        text = unquote(parts.path)
    folder = Path(text).absolute()
    return folder if folder.is_dir() else None


def table_behind(held: Held | None, there: bool, batch: int | None) -> str:
    """The error of a table that holds less than its note ``held`` says; '' for none.

    ``there`` says whether the table exists, ``batch`` is the batch of the query that it holds.
    """
    if held is None:
        return ""
    if not there:
        return (
            f"there is no table at {held.where}, where one was that held {_batch(held.batch)} of"
            f" the query: it was removed, or its folder is not mounted. {_help(held)}"
        )
    if held.batch < 0 or (batch is not None and batch >= held.batch):
        return ""
    return (
        f"the table {held.where} holds {_batch(-1 if batch is None else batch)} of query"
        f" {held.query}, but it held batch {held.batch} when the query wrote it last: an older table"
        f" was put back, and the rows between would be missing. {_help(held, fill=batch is not None)}"
    )


def table_before(where: str, holds: int, batch: int) -> str:
    """The error of a table that does not hold the batch before the one to write."""
    return (
        f"the table {where} holds {_batch(holds)} of the query, which writes batch {batch} now: the"
        " table was removed, or an older one put back, and the rows between would be missing."
        f" {_help(Held(where, batch - 1))}"
    )


def table_missing(where: str) -> str:
    """The error of a table that is missing, although its query is beyond the first batch."""
    return (
        f"there is no table at {where}, but the query has done batches before: the table was"
        f" removed, or its folder is not mounted. {_help(Held(where))}"
    )


def stream_behind(held: Held | None, born: str, last: int) -> str:
    """The error of a stream that holds less than its note ``held`` says; '' for none."""
    if held is None:
        return ""
    if born != held.born:
        return (
            f"{held.where} was created at {born}, but the query wrote its batches up to"
            f" {held.batch} into one of {held.born}: it was created again. {_help(held)}"
        )
    if last < held.last:
        return (
            f"{held.where} ends at sequence {last}, but ended at {held.last} after batch"
            f" {held.batch} of the query: an older one was put back. {_help(held)}"
        )
    return ""


def _batch(number: int) -> str:
    return "no batch" if number < 0 else f"batch {number}"


def _help(held: Held, *, fill: bool = False) -> str:
    back = f"what held batch {held.batch}" if held.batch >= 0 else "it"
    filled = ", have ifBehind=fill read them again" if fill else ""
    return f"Put back {back}{filled}, or say with ifBehind=begin that rows may be missing"
