"""Fill the hole of a target that was put back: its query runs the missing batches again.

A table from a backup holds batch 2, the checkpoint holds batch 5, and batch 6 is planned::

    offsets  0 1 2 3 4 5 6         offsets  0 1 2'      2' also says where 3 to 6 ended
    commits  0 1 2 3 4 5     ─►    commits  0 1 2

So Spark runs batches 3 to 6 again, with the same numbers and the same rows: the sources end them
where they ended before (:func:`next_end`). The table recognizes by its marks which batches it has,
and takes each one once; other targets of the query hold them already and take nothing. The process
may be killed at any point: filling then continues or begins again, because only ``ready`` says that the
checkpoint is complete.

The folder ``pelton`` of the checkpoint contains::

    ends.jsonl       {"batch": 3, "ends": [{"stream": ...}]}   where batches ended, as they were done
    again.json       {"behind": 2, "until": 6, "ready": true}  the batches that run again
    again-0.jsonl    {"batch": 3, "end": {"stream": ...}}      the same for one source to read
    aside            files moved out of Spark's two folders

Spark itself keeps the ends of its last 100 batches. Does not depend on Spark's classes or tables.
"""

from __future__ import annotations

import contextlib
import os
from typing import TYPE_CHECKING, Any

import msgspec

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path

FOLDER = "pelton"
AGAIN = ".again"
"""The key in an offset that refers to the ends of the next batches; no stream has such a name."""

_OFFSETS, _COMMITS, _ASIDE = "offsets", "commits", "aside"
_ENDS, _ENDS_BEFORE, _RECORD = "ends.jsonl", "ends-before.jsonl", "again.json"
_ENDS_BYTES_MAX = 16 * 2**20
_VERSION = "v1"
_HEAD_LINES = 2
_TABLE_KEYS = frozenset(("table", "version", "file", "snapshot"))


class FillingError(RuntimeError):
    """A hole that cannot be filled; the text says why, as the part of a sentence after a colon."""


class Again(msgspec.Struct, frozen=True):
    """The batches after ``behind`` up to ``until`` run again; ``ready`` once the checkpoint stands
    at ``behind``.
    """

    behind: int
    until: int
    ready: bool = False


class _Ends(msgspec.Struct, frozen=True):
    """Where a batch ended in each source of the query."""

    batch: int
    ends: list[dict[str, Any]]


class _End(msgspec.Struct, frozen=True):
    """Where a batch ended in one source."""

    batch: int
    end: dict[str, Any]


# The newest batch that this process has noted, and the time of its file, by checkpoint.
_noted: dict[str, tuple[int, int]] = {}


def note_end(checkpoint: Path | None) -> None:
    """Note where the current batch ends; after an error of the disk only Spark's files have the
    end.
    """
    if checkpoint is None:
        return
    with contextlib.suppress(OSError, FillingError):
        batch = _newest(checkpoint / _OFFSETS)
        if batch < 0:
            return
        path = checkpoint / _OFFSETS / str(batch)
        now = (batch, path.stat().st_mtime_ns)
        if _noted.get(str(checkpoint)) == now:
            return
        line = msgspec.json.encode(_Ends(batch, _ends_in(path))) + b"\n"
        notes = checkpoint / FOLDER / _ENDS
        notes.parent.mkdir(exist_ok=True)
        if notes.exists() and notes.stat().st_size > _ENDS_BYTES_MAX:
            notes.replace(notes.with_name(_ENDS_BEFORE))
        with notes.open("ab", buffering=0) as file:
            file.write(line)
        _noted[str(checkpoint)] = now


def again_of(checkpoint: Path | None) -> Again | None:
    """The record of the batches that run again in a checkpoint, or ran again."""
    if checkpoint is None:
        return None
    try:
        return msgspec.json.decode((checkpoint / FOLDER / _RECORD).read_bytes(), type=Again)
    except (OSError, msgspec.MsgspecError):
        return None


def repeated_until(checkpoint: Path | None) -> int:
    """The last batch that may be repeated for a target that holds it; -1 for none."""
    again = again_of(checkpoint)
    return -1 if again is None else again.until


def filling_batch(checkpoint: Path, held: int, holds: int) -> int | None:
    """The next batch of the query, when it is one of those that fill the hole of a target; else None.

    The target was noted to have held batch ``held``, and holds batch ``holds`` now. The batch is the
    current one, or the first one of a start.
    """
    again = again_of(checkpoint)
    if again is None or not again.ready or holds < again.behind:
        return None
    now = max(_newest(checkpoint / _OFFSETS), _newest(checkpoint / _COMMITS) + 1)
    # The first batch that the target takes renews its note: batches behind that one are new then.
    return now if again.behind < now <= min(again.until, held) else None


def put_back(checkpoint: Path, behind: int) -> Again:
    """Put the checkpoint back to the end of batch ``behind``.

    The query must stand still, or fail with this batch. Raises :class:`FillingError`, with nothing
    changed; OSError for an error of the disk.
    """
    if behind < 0:
        raise FillingError(
            "it has no batch of the query to continue after: begin with a new checkpoint and a new table"
        )
    if any((checkpoint / "state").glob("*")):
        raise FillingError(
            "the query keeps state (an aggregation, a join of streams), which would count rows twice"
        )
    before = again_of(checkpoint)
    until = max(_newest(checkpoint / _OFFSETS), -1 if before is None else before.until)
    ends = _known_ends(checkpoint)
    lacking = [batch for batch in range(behind, until + 1) if batch not in ends]
    if lacking:
        raise FillingError(
            f"where batch {lacking[0]} ended is not known any more (Spark keeps 100 batches, and the"
            " notes of Pelton may have begun later)"
        )
    wanted = {batch: ends[batch] for batch in range(behind, until + 1)}
    _check_sources(wanted)
    folder = checkpoint / FOLDER
    folder.mkdir(exist_ok=True)
    _write(folder / _RECORD, msgspec.json.encode(Again(behind, until)))
    for number in range(len(wanted[behind])):
        _write(_again_file(checkpoint, number), _lines_of(number, wanted, behind))
    _make_batch(checkpoint, behind, wanted[behind], ends.get(behind - 1, wanted[behind]))
    for name in (_COMMITS, _OFFSETS):
        _set_aside(checkpoint, name, behind)
    again = Again(behind, until, ready=True)
    _write(folder / _RECORD, msgspec.json.encode(again))
    return again


def next_end(start: Mapping[str, Any]) -> dict[str, Any] | None:
    """The end of the next batch for a source that is at ``start``, when this batch runs again.

    None for a new batch. Raises :class:`FillingError` when the end is not on record any more.
    """
    pointer = start.get(AGAIN)
    if pointer is None:
        return None
    file, batch = str(pointer["file"]), int(pointer["batch"])
    try:
        with open(file, "rb") as lines:
            found = {each.batch: each.end for each in _decoded(lines, _End)}
        end = dict(found[batch])
    except (OSError, KeyError):
        raise FillingError(
            f"{file} does not say where batch {batch} ended: was the checkpoint moved while a hole was"
            " being filled? Move it back"
        ) from None
    if batch + 1 in found:
        end[AGAIN] = {"file": file, "batch": batch + 1}
    return end


def _again_file(checkpoint: Path, source: int) -> Path:
    return checkpoint / FOLDER / f"again-{source}.jsonl"


def _lines_of(source: int, wanted: Mapping[int, list[dict[str, Any]]], behind: int) -> bytes:
    ends = (_End(batch, each[source]) for batch, each in wanted.items() if batch > behind)
    return b"".join(msgspec.json.encode(end) + b"\n" for end in ends)


def _make_batch(
    checkpoint: Path, behind: int, ends: list[dict[str, Any]], before: list[dict[str, Any]]
) -> None:
    """Write files into Spark's folders: batch ``behind`` is done, and refers to the ends of the next ones.

    Harmless as long as the folders have later batches.
    """
    offsets, commits = checkpoint / _OFFSETS, checkpoint / _COMMITS
    head = _text(checkpoint, _OFFSETS, behind).split("\n")[:_HEAD_LINES]
    pointed = [
        end | {AGAIN: {"file": str(_again_file(checkpoint, number)), "batch": behind + 1}}
        for number, end in enumerate(ends)
    ]
    if behind > 0 and not (offsets / str(behind - 1)).exists():  # Spark reads this file
        _write_spark(offsets / str(behind - 1), [*head, *map(_json, before)])
    _write_spark(offsets / str(behind), [*head, *map(_json, pointed)])
    if not (commits / str(behind)).exists():
        _write_spark(commits / str(behind), _text(checkpoint, _COMMITS, behind).split("\n"))


def _text(checkpoint: Path, name: str, batch: int) -> str:
    """Spark's file of a batch, or of the newest other one, when only the head is needed."""
    places = (checkpoint / name, checkpoint / FOLDER / _ASIDE / name)
    for folder in places:
        path = folder / str(batch)
        if not path.exists():
            path = folder / str(_newest(folder))
        if path.exists():
            return path.read_text()
    raise FillingError(f"there is no file in {checkpoint / name}")


def _set_aside(checkpoint: Path, name: str, above: int) -> None:
    """Move the batches above ``above`` out of one of Spark's folders, the newest first."""
    aside = checkpoint / FOLDER / _ASIDE / name
    aside.mkdir(parents=True, exist_ok=True)
    found = [(_number(path.name), path) for path in (checkpoint / name).iterdir()]
    for _, path in sorted((each for each in found if each[0] > above), reverse=True):
        path.replace(aside / path.name)
    for folder in (aside, checkpoint / name):
        _sync(folder)


def _check_sources(wanted: Mapping[int, list[dict[str, Any]]]) -> None:
    """Raise :class:`FillingError` for a source that cannot end its batches where they ended before."""
    counts = {len(ends) for ends in wanted.values()}
    if len(counts) > 1:
        raise FillingError("the query had other sources in between")
    for ends in wanted.values():
        for end in ends:
            stream = "born" in end and "stream" in end
            streams = all(isinstance(each, dict) and "born" in each for each in end.values())
            if not (stream or streams or end.keys() == _TABLE_KEYS):
                raise FillingError(
                    "the query reads something that cannot be told to make its batches again;"
                    " jetstream, jetstream_delta and jetstream_iceberg can"
                )


def _known_ends(checkpoint: Path) -> dict[int, list[dict[str, Any]]]:
    """Where batches ended: from the notes, then from Spark's files; the last entry of a batch
    counts.
    """
    known: dict[int, list[dict[str, Any]]] = {}
    for name in (_ENDS_BEFORE, _ENDS):
        with (
            contextlib.suppress(FileNotFoundError),
            (checkpoint / FOLDER / name).open("rb") as file,
        ):
            known.update((each.batch, each.ends) for each in _decoded(file, _Ends))
    for folder in (checkpoint / FOLDER / _ASIDE / _OFFSETS, checkpoint / _OFFSETS):
        for path in folder.glob("[0-9]*"):
            batch = _number(path.name)
            if path.name == str(batch) and (folder.parent == checkpoint or batch not in known):
                known[batch] = _ends_in(path)
    return known


def _decoded(lines: Iterable[bytes], kind: Any) -> Iterable[Any]:
    """The complete lines: a kill may have cut the last one off."""
    for line in lines:
        with contextlib.suppress(msgspec.MsgspecError):
            yield msgspec.json.decode(line, type=kind)


def _ends_in(path: Path) -> list[dict[str, Any]]:
    """The ends of a batch in Spark's file, without references to batches that run again."""
    lines = path.read_text().split("\n")
    if lines[0] != _VERSION:
        raise FillingError(f"{path} is of form {lines[0]}, not {_VERSION}")
    try:
        found = [
            msgspec.json.decode(line, type=dict[str, Any]) for line in lines[_HEAD_LINES:] if line
        ]
    except msgspec.MsgspecError:
        raise FillingError(
            "the query reads something whose offsets are no objects; jetstream, jetstream_delta"
            " and jetstream_iceberg can make their batches again"
        ) from None
    return [{name: value for name, value in end.items() if name != AGAIN} for end in found]


def _number(name: str) -> int:
    """The batch number of one of Spark's files, or of its checksum; -1 for other files."""
    first = name.removeprefix(".").partition(".")[0]
    return int(first) if first.isascii() and first.isdigit() else -1


def _newest(folder: Path) -> int:
    try:
        return max((int(name) for name in os.listdir(folder) if name.isdigit()), default=-1)
    except OSError:
        return -1


def _json(value: object) -> str:
    return msgspec.json.encode(value).decode()


def _write_spark(path: Path, lines: list[str]) -> None:
    """Write a file into one of Spark's folders, and remove the checksum of an older one."""
    for old in path.parent.iterdir():
        if old != path and _number(old.name) == int(path.name):
            old.unlink()
    _write(path, "\n".join(lines).encode())


def _write(path: Path, data: bytes) -> None:
    """Write a whole file or none; it is synced when this returns."""
    draft = path.with_name(f".{path.name}.draft")
    with draft.open("wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    draft.replace(path)
    _sync(path.parent)


def _sync(folder: Path) -> None:
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
