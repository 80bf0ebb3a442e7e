"""The stream that rows are written into, checked before the write begins.

A property of the stream that would make each row fail, or that breaks a promise of the write, is
reported here in one line, before any row is written. Does not depend on Spark.
"""

from __future__ import annotations

import contextlib
import dataclasses
import warnings
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pelton.api.keyvalue import STREAM_PREFIX
from pelton.api.times import format_time
from pelton.core.protocol.subjects import collide, literal, matches, subset
from pelton.errors import NoRespondersError, PeltonError, StreamNotFoundError
from pelton.spark.connection import ReadError, client_for, jetstream_for
from pelton.spark.filling import repeated_until
from pelton.spark.holding import FAIL, Held, Memory, memory_of, stream_behind
from pelton.spark.writing.options import BATCH, IDS
from pelton.spark.writing.progress import replicate_bucket
from pelton.spark.writing.row_errors import WriteError

if TYPE_CHECKING:
    from pelton.client.base.models import StreamConfig, StreamInfo
    from pelton.spark.writing.options import WriteOptions

WINDOW_WANTED_SECONDS = 20.0
_NS = 1_000_000_000
_told: set[str] = set()
"""Streams for which this process has warned that there is no note of their state."""
_PREFIXES = {"stream": "", "bucket": STREAM_PREFIX, "object store": "OBJ_"}


@dataclass(frozen=True)
class Target:
    """The properties of the stream that a task needs; picklable.

    ``stream`` is None where rows may go to any stream. ``born`` is the time of its creation. ``rollup``
    says whether a message may replace earlier ones. ``filter`` is the subject of all rows when they
    share one; it narrows a scan of the stream.
    """

    stream: str | None = None
    born: str = ""
    expected: bool = False
    """Whether each message carries the expectation of this stream."""
    message_bytes_max: int = 0
    kept_of_subject: int = 0
    """How many messages of a subject the stream keeps; 0 for no limit."""
    rollup: bool = False
    filter: str | None = None
    progress_subject: str = ""
    subjects: tuple[str, ...] = ()
    """The subjects that the stream takes."""
    window_seconds: float = 0.0
    """The duplicate window of the stream."""
    replicas: int = 1
    """The number of servers that hold the stream."""
    last: int = 0
    """The last sequence of the stream."""
    done: int = -1
    """The stream has the batches up to this one, when a query repeats them for another target."""

    def takes(self, subject: str) -> bool:
        """Whether the stream took this subject when it was checked."""
        return literal(subject) and any(matches(subject, taken) for taken in self.subjects)


def look_at(
    options: WriteOptions, subjects: str | None, *, fixed: bool, ttl: bool, kind: str = "stream"
) -> Target:
    """Find the stream that takes ``subjects`` or that the options name, and check it for the write.

    ``ttl`` says whether rows have a TTL. ``kind`` is the user's word for such a stream. Raises
    :class:`WriteError` when the stream is missing or not fit, and warns where exactly-once has a
    condition.
    """
    info = find(options, subjects, kind=kind)
    if info is None:
        return Target()
    config = info.config
    _check_open(config, ttl=ttl)
    if subjects is not None and not any(collide(subjects, taken) for taken in config.subjects):
        taken = ", ".join(config.subjects)
        raise WriteError(f"stream {config.name} does not take subject {subjects}; it takes {taken}")
    if options.exactly_once == IDS:
        _check_window(config)
        if config.num_replicas > 1:
            replicate_bucket(
                jetstream_for(options.servers), options.progress_bucket, config.num_replicas
            )
    progress = _progress_subject(options, info) if options.exactly_once == BATCH else ""
    target = Target(
        stream=config.name,
        born=format_time(info.created),
        expected=options.stream is not None,
        message_bytes_max=max(0, config.max_msg_size),
        kept_of_subject=max(0, config.max_msgs_per_subject),
        rollup=config.allow_rollup_hdrs and not config.deny_purge,
        filter=subjects if fixed and config.subject_transform is None else None,
        progress_subject=progress,
        subjects=tuple(config.subjects),
        window_seconds=config.duplicate_window / _NS,
        replicas=config.num_replicas,
        last=info.state.last_seq,
    )
    memory = _memory(options, target)
    held = memory.recall()
    behind = stream_behind(held, target.born, target.last)
    if behind and options.if_behind == FAIL:
        raise WriteError(behind)
    if held is not None and not behind:
        done = min(held.batch, repeated_until(memory.checkpoint))
        return dataclasses.replace(target, done=done)
    return target


def note_written(options: WriteOptions, target: Target, batch: int) -> None:
    """Note the state of the stream after a batch beside the checkpoint; runs on the driver."""
    memory = _memory(options, target)
    if memory.checkpoint is None or target.stream is None:
        return
    # Without the note, only a comparison is left out.
    with contextlib.suppress(PeltonError, ReadError):
        info = jetstream_for(options.servers).stream_info(target.stream)
        born, last = format_time(info.created), info.state.last_seq
        held = memory.recall()
        if target.done >= 0 and held is not None and held.born == born:
            batch = max(batch, held.batch)
        memory.note(Held(memory.where, batch, born=born, last=last))


def warn_unnoticed(options: WriteOptions, target: Target) -> None:
    """Warn once for a stream whose state is not noted: a stream that was put back stays unnoticed."""
    if target.stream is None or options.if_behind != FAIL or target.stream in _told:
        return
    if _memory(options, target).checkpoint is None:
        _told.add(target.stream)
        place = f", not {options.checkpoint}" if options.checkpoint else ""
        warnings.warn(
            f"if stream {target.stream} is restored or created again between two batches, the query"
            " does not notice, because it keeps no note of the stream. Notes need a checkpoint in a folder"
            f" on the driver's machine, given as option checkpointLocation{place}",
            stacklevel=3,
        )


def _memory(options: WriteOptions, target: Target) -> Memory:
    return memory_of(options.checkpoint, f"stream {target.stream} on {options.servers}")


def find(options: WriteOptions, subjects: str | None, *, kind: str = "stream") -> StreamInfo | None:
    """The stream that the options name or that takes ``subjects``; None where rows may go to any.

    Raises :class:`WriteError` when it is missing, or the server does not answer.
    """
    try:
        client_for(options.servers)
        stream = options.stream or _named(options, subjects)
        return None if stream is None else jetstream_for(options.servers).stream_info(stream)
    except StreamNotFoundError:
        name = (options.stream or "").removeprefix(_PREFIXES[kind])
        raise WriteError(f"there is no {kind} {name} on {options.servers}") from None
    except NoRespondersError:
        raise WriteError(f"{options.servers} has no JetStream") from None
    except ReadError as error:
        raise WriteError(str(error)) from error
    except PeltonError as error:
        raise WriteError(f"{options.servers}: {error}") from error


def _named(options: WriteOptions, subjects: str | None) -> str | None:
    if subjects is None:
        if options.exactly_once in (IDS, BATCH):
            raise WriteError(
                "the subjects come from a column: say with option stream which stream takes them,"
                f" for exactlyOnce={options.exactly_once} looks into it"
            )
        return None
    names = jetstream_for(options.servers).stream_names(subjects)
    if not names:
        raise WriteError(f"no stream on {options.servers} takes subject {subjects}")
    if len(names) > 1 and options.exactly_once in (IDS, BATCH):
        raise WriteError(
            f"several streams take subjects like {subjects}: {', '.join(names)}."
            " Say with option stream which one is meant"
        )
    return names[0] if len(names) == 1 else None


def _check_open(config: StreamConfig, *, ttl: bool) -> None:
    name = config.name
    if config.mirror is not None:
        raise WriteError(f"stream {name} is a mirror of {config.mirror.name}: write into that")
    if config.sealed:
        raise WriteError(f"stream {name} is sealed and takes no messages")
    if config.no_ack:
        raise WriteError(
            f"stream {name} has no_ack set: the sink would not know which rows are stored"
        )
    if ttl and not config.allow_msg_ttl:
        raise WriteError(
            f"rows have a ttl, but stream {name} does not allow one: set allow_msg_ttl"
            " (from nats-server 2.11 on)"
        )


def _check_window(config: StreamConfig) -> None:
    seconds = config.duplicate_window / _NS
    name = config.name
    if seconds <= 0:
        raise WriteError(
            f"stream {name} has a duplicate window of 0: it does not recognize a repeated message"
            " id. Set duplicate_window (2 minutes are usual), or exactlyOnce=batch"
        )
    if seconds < WINDOW_WANTED_SECONDS:
        warnings.warn(
            f"stream {name} recognizes a message id for {seconds:g} s only: if two attempts at one"
            f" partition run at the same time, rows that take more than {seconds / 4:g} s to arrive may be"
            " written twice. Set duplicate_window to more (2 minutes are usual), or exactlyOnce=batch",
            stacklevel=3,
        )
    if config.retention != "limits":
        warnings.warn(
            f"stream {name} has {config.retention} retention and does not keep consumed rows: a repeated"
            f" write finds them only within {seconds:g} s, and later writes them again. Set"
            " duplicate_window to more than a restart takes",
            stacklevel=3,
        )


def _progress_subject(options: WriteOptions, info: StreamInfo) -> str:
    config = info.config
    if not config.allow_atomic:
        raise WriteError(
            f"stream {config.name} takes no atomic batches: set allow_atomic (from nats-server 2.12"
            " on), or use exactlyOnce=ids"
        )
    if config.retention != "limits":
        raise WriteError(
            f"stream {config.name} has {config.retention} retention: it would not keep the"
            " progress records of exactlyOnce=batch"
        )
    begin = options.progress_subject or f"spark.progress.{config.name}"
    if not any(subset(f"{begin}.>", taken) for taken in config.subjects):
        raise WriteError(
            f"exactlyOnce=batch keeps its progress in stream {config.name} itself: add the subject"
            f" {begin}.> to it, or say with progressSubject where below its subjects"
            f" ({', '.join(config.subjects)}) it may be"
        )
    return begin
