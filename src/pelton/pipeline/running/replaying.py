"""Processes rejected messages again, with the steps as the file has them now.

The messages of the rows in a sink's table are read from their streams again. Those that pass go to the sinks of the
step, in one commit for each table; the others stay. A record in the state folder and the marks of the tables keep
a message from being written twice::

    <state>/replays/bad_orders/5f0c....json     {"messages": [["ORDERS", 412]], "done": true}

A record that is not done is of a replay that was killed: its messages are written first, under the same marks.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any

from pyspark.sql import functions as F  # noqa: N812  the name the field knows it by

from pelton.pipeline.children import Children, FolderInUseError
from pelton.pipeline.description.functions import carry_modules
from pelton.pipeline.description.graph import ordered, streams_of
from pelton.pipeline.description.model import DELTA, ICEBERG, REJECTED, node_of
from pelton.pipeline.description.problems import did_you_mean
from pelton.pipeline.running.durable import write_durably
from pelton.pipeline.running.frames import Frames, keeps_state
from pelton.pipeline.running.rejected import Thrown, is_thrown, message_columns
from pelton.pipeline.running.stages import StepError, said
from pelton.pipeline.running.stored import Message, dropped, stored
from pelton.pipeline.running.throwing import TooManyThrow, evaluate, thrown
from pelton.pipeline.running.writing import write_batch, writer_name
from pelton.spark.connection import ReadError
from pelton.spark.parsing import OptionError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

    from pelton.pipeline.description.model import Pipeline, Sink, Step

AT_ONCE = 10_000
"""Messages of one commit."""


@dataclass(frozen=True)
class Replayed:
    """What a replay did, or would do: messages, and the rows that each sink got."""

    sink: str
    rejected: int
    before: int
    replayed: int = 0
    rows: dict[str, int] = field(default_factory=dict)
    failing: tuple[str, ...] = ()
    gone: tuple[str, ...] = ()


def replay(
    pipeline: Pipeline,
    spark: SparkSession,
    name: str,
    *,
    where: str | None = None,
    dry_run: bool = False,
) -> Replayed:
    """Write the messages of a sink's rejected rows that pass now to the sinks of the step.

    ``where`` is a condition for the rows of its table. Raises :class:`StepError`, also while another
    process replays.
    """
    again = _Replay(pipeline, spark, name)
    again.check()
    folder = pipeline.state / "replays"
    try:
        children = Children(folder)
    except FolderInUseError as error:
        raise StepError(f"{error}: wait for it") from None
    try:
        return again.run(where, dry_run=dry_run)
    finally:
        children.release()


def replayed_step(pipeline: Pipeline, name: str) -> Step:
    """The step whose rejected rows a sink keeps. Raises :class:`StepError`."""
    sink = pipeline.sinks.get(name)
    if sink is None:
        hint = did_you_mean(name, pipeline.sinks)
        raise StepError(f"{pipeline.file}: there is no sink {name}{hint}")
    if not sink.input.endswith(REJECTED) or (
        sink.upsert is None and sink.format not in (DELTA, ICEBERG)
    ):
        raise _refused(pipeline, sink, "it is not a table of the rejected rows of a step")
    return pipeline.steps[node_of(sink.input)]


def _refused(pipeline: Pipeline, sink: Sink, text: str) -> StepError:
    return StepError(pipeline.hide(f"{pipeline.file}:{sink.line}: sinks.{sink.name}: {text}"))


class _Replay:
    def __init__(self, pipeline: Pipeline, spark: SparkSession, name: str) -> None:
        self._step = replayed_step(pipeline, name)
        self._pipeline = pipeline
        self._spark = spark
        self._sink = pipeline.sinks[name]
        self._sources = [pipeline.sources[each] for each in streams_of(pipeline, self._step.name)]
        self._targets = list(self._behind())
        self._folder = pipeline.state / "replays" / name
        self._stored: dict[str, DataFrame] = {}

    def check(self) -> None:
        """Raise :class:`StepError` if a sink cannot get rows once, or gets them on other ways too."""
        pipeline = self._pipeline
        carry_modules(pipeline.folder)
        if other := [each for each in self._sources if each.format != "jetstream"]:
            text = f"sources.{other[0].name} is {other[0].format}, and only messages of a stream can be read again"
            raise _refused(pipeline, self._sink, text)
        if not self._targets:
            raise _refused(
                pipeline, self._sink, f"no sink reads the rows that pass {self._step.name}"
            )
        frames = Frames(pipeline, self._spark)
        for sink in self._targets:
            if not sink.once_by_batch:
                raise _refused(
                    pipeline,
                    sink,
                    "a replay needs mode append, and upsert or a format of this package",
                )
            if self._also_reads(sink):
                text = f"it also gets rows that do not pass {self._step.name}, so a replay could write them twice"
                raise _refused(pipeline, sink, text)
            if state := keeps_state(frames.sink(sink)):
                text = f"its input keeps state over the stream ({', '.join(state)}), which a replay does not have"
                raise _refused(pipeline, sink, text)

    def _behind(self) -> Iterator[Sink]:
        """The sinks that read the rows that pass the step."""
        name, found = self._step.name, set[str]()
        for each in ordered(self._pipeline):
            step = self._pipeline.steps.get(each)
            inputs = step.inputs if step is not None else ()
            if any(one == name or node_of(one) in found for one in inputs):
                found.add(each)
        for sink in self._pipeline.sinks.values():
            if sink.input == name or node_of(sink.input) in found:
                yield sink

    def _also_reads(self, sink: Sink) -> bool:
        """Whether streamed rows reach a sink on a way that is not through the rows that pass the step."""
        waiting, seen = [sink.input], set[str]()
        while waiting:
            reference = waiting.pop()
            if reference == self._step.name or reference in seen:
                continue
            seen.add(reference)
            node = node_of(reference)
            source = self._pipeline.sources.get(node)
            if reference == self._step.name + REJECTED or (
                source is not None and not source.static
            ):
                return True
            waiting += self._pipeline.steps[node].inputs if node in self._pipeline.steps else ()
        return False

    def run(self, where: str | None, *, dry_run: bool) -> Replayed:
        kept = self._kept(where)
        records = [json.loads(path.read_text()) for path in sorted(self._folder.glob("*.json"))]
        begun = {(stream, int(seq)) for each in records for stream, seq in each["messages"]}
        rows: dict[str, int] = {}
        gone: list[str] = []
        count = 0
        if not dry_run:
            for record in records:
                if not record["done"]:
                    messages = [(stream, int(seq)) for stream, seq in record["messages"]]
                    missing = self._write(messages, rows)
                    gone += [f"{_shown(each)}: {self._why_gone(each)}" for each in missing]
                    count += len(messages) - len(missing)
        failing: list[Message] = []
        new = sorted(message for message in kept if message not in begun)
        for begin in range(0, len(new), AT_ONCE):
            some = new[begin : begin + AT_ONCE]
            good, bad = self._judged({message: kept[message] for message in some}, gone)
            failing += bad
            count += len(good)
            if good and not dry_run:
                self._write(good, rows)
        return Replayed(
            self._sink.name,
            len(kept),
            len(kept) - len(new),
            count,
            rows,
            tuple(_shown(each) for each in failing),
            tuple(gone),
        )

    def _kept(self, where: str | None) -> dict[Message, Any]:
        """The messages of the table's rows, each with its time if the table has that."""
        try:
            rows = self._table()
            if where is not None:
                rows = rows.where(where)
            if "seq" not in rows.columns:
                raise _refused(
                    self._pipeline,
                    self._sink,
                    "its table has no column seq, which names the message",
                )
            stream = F.col("stream") if "stream" in rows.columns else F.lit(self._only_stream())
            time = (
                F.col("ts") if ("ts", "timestamp") in rows.dtypes else F.lit(None).cast("timestamp")
            )
            table = rows.select(stream.alias("stream"), "seq", time.alias("ts")).toArrow()
        except StepError:
            raise
        except Exception as error:  # from Spark: no table, a condition that does not fit
            raise _refused(self._pipeline, self._sink, said(error, text=where or "")) from error
        found = zip(*(table[name].to_pylist() for name in ("stream", "seq", "ts")), strict=True)
        return {(stream, seq): ts for stream, seq, ts in found if seq is not None and stream}

    def _only_stream(self) -> str:
        if name := self._one_stream():
            return name
        text = "its table has no column stream, and the messages may be of several"
        raise _refused(self._pipeline, self._sink, text)

    def _one_stream(self) -> str:
        """The stream of all messages, if there is just one; else ''."""
        options = {name.lower(): text for name, text in self._sources[0].options.items()}
        name = options.get("stream", "")
        return "" if len(self._sources) > 1 or "," in name else name

    def _table(self) -> DataFrame:
        sink = self._sink
        reader = self._spark.read
        if sink.format == ICEBERG:
            names = ("table", "catalog")
            given = {
                k: v
                for k, v in sink.options.items()
                if k.lower() in names or k.lower().startswith("catalog.")
            }
            return reader.format(ICEBERG).options(**given).load()
        if sink.upsert is not None:
            storage = {f"storage.{name}": text for name, text in sink.upsert.storage.items()}
        else:
            storage = {k: v for k, v in sink.options.items() if k.lower().startswith("storage.")}
        return reader.format(DELTA).options(**storage).load(sink.place)

    def _judged(
        self, kept: dict[Message, Any], gone: list[str]
    ) -> tuple[list[Message], list[Message]]:
        """The messages that pass now and those that do not; those that are not there any more go to ``gone``."""
        self._read(list(kept))
        there = self._there()
        left = []
        for message, time in kept.items():
            if message not in there:
                gone.append(f"{_shown(message)}: {self._why_gone(message)}")
            elif None not in (time, there[message]) and there[message] != time:
                gone.append(f"{_shown(message)}: the stream has another message there now")
            else:
                left.append(message)
        if not left:
            return [], []
        bad = self._throwing(left)
        bad |= self._rejected([message for message in left if message not in bad])
        return [each for each in left if each not in bad], sorted(bad)

    def _there(self) -> dict[Message, Any]:
        """The messages that were read, each with its time if the source has it."""
        found: dict[Message, Any] = {}
        for rows in self._stored.values():
            columns = message_columns(rows, self._one_stream()) or []
            time = F.col("ts") if "ts" in rows.columns else F.lit(None).cast("timestamp")
            table = rows.select(*columns, time.alias("ts")).toArrow().to_pydict()
            found.update({(a, b): ts for a, b, ts in zip(*table.values(), strict=True)})
        return found

    def _why_gone(self, message: Message) -> str:
        with contextlib.suppress(ReadError, OptionError):
            return dropped(self._sources, message)
        return "it is not in the stream any more"

    def _read(self, messages: Sequence[Message]) -> None:
        """Read these messages, always in the same order and in one partition."""
        try:
            self._stored = stored(self._spark, self._sources, messages)
        except Exception as error:  # from Spark, the formats and the servers
            raise _refused(self._pipeline, self._sink, said(error)) from error

    def _given(self, messages: Sequence[Message]) -> dict[str, DataFrame]:
        """The rows of some of the messages that were read, by source."""
        some = [Thrown(stream, seq, "") for stream, seq in messages]
        if self._one_stream():
            some = [each._replace(stream="") for each in some]
        return {name: rows.where(is_thrown(rows, some)) for name, rows in self._stored.items()}

    def _frames(self, given: dict[str, DataFrame]) -> Frames:
        return Frames(self._pipeline, self._spark, given=given)

    def _throwing(self, messages: list[Message]) -> set[Message]:
        """The messages for which the step or a sink behind it throws."""
        found: set[Message] = set()
        for name in (self._step.name, *(sink.name for sink in self._targets)):
            good = [message for message in messages if message not in found]
            given = self._given(good)
            if good and evaluate(self._made(name, given)) is not None:
                for source, rows in given.items():
                    one = self._thrown(rows, partial(self._instead, name, given, source))
                    found |= {(each.stream or self._one_stream(), each.seq) for each in one}
        return found

    def _thrown(self, rows: DataFrame, make: Callable[[DataFrame], DataFrame]) -> list[Thrown]:
        try:
            return thrown(rows, make)
        except TooManyThrow as many:
            text = f"{many.count}: message {many.first.seq}: {many.first.error}"
            raise _refused(self._pipeline, self._sink, text) from None
        except Exception as error:  # it throws without any rows
            raise _refused(self._pipeline, self._sink, said(error)) from error

    def _instead(
        self, name: str, given: dict[str, DataFrame], source: str, some: DataFrame
    ) -> DataFrame:
        return self._made(name, {**given, source: some})

    def _made(self, name: str, given: dict[str, DataFrame]) -> DataFrame:
        frames = self._frames(given)
        sink = self._pipeline.sinks.get(name)
        return frames.whole(name) if sink is None else frames.sink(sink)

    def _rejected(self, messages: list[Message]) -> set[Message]:
        """The messages that fail the conditions of the step, or that do not come to it any more.

        Raises :class:`StepError` if one makes several rows, of which some may have passed.
        """
        if not messages:
            return set()
        frames = self._frames(self._given(messages))
        columns = message_columns(frames.node(self._step.name), self._one_stream())
        if columns is None:
            raise _refused(
                self._pipeline, self._sink, f"the rows of {self._step.name} have no column seq"
            )
        counted = frames.node(self._step.name).select(*columns).groupBy("stream", "seq").count()
        made = {(row[0], row[1]): row[2] for row in counted.collect()}
        if self._step.expect and (many := [each for each, count in made.items() if count > 1]):
            text = (
                f"{_shown(min(many))} makes {made[min(many)]} rows in steps.{self._step.name}, some of which may"
                " have passed: it cannot be replayed once"
            )
            raise _refused(self._pipeline, self._sink, text)
        failed = set(messages) - made.keys()
        if self._step.expect:
            rejected = frames.of(self._sink.input)
            columns = message_columns(rejected, self._one_stream())
            assert columns is not None  # the step has them
            failed |= {(row[0], row[1]) for row in rejected.select(*columns).collect()}
        return failed

    def _write(self, messages: list[Message], rows: dict[str, int]) -> list[Message]:
        """Write messages to all sinks behind the step, and record it before and after.

        Returns those that are gone since the record was begun.
        """
        text = json.dumps([self._sink.name, messages])
        name = hashlib.blake2b(text.encode(), digest_size=12).hexdigest()
        path = self._folder / f"{name}.json"
        self._record(path, messages, done=False)
        self._read(messages)
        frames = self._frames(self._stored)
        mark = f"replay:{self._sink.name}:{name}"
        for sink in self._targets:
            made = frames.sink(sink).persist()
            try:
                rows[sink.name] = rows.get(sink.name, 0) + made.count()
                writer = writer_name(f"replay-{name}", sink.name)
                write_batch(_once(sink), made, mark, 0, writer=writer)
            except Exception as error:  # from Spark and the formats
                raise _refused(self._pipeline, sink, said(error)) from error
            finally:
                made.unpersist()
        self._record(path, messages, done=True)
        there = self._there()
        return [message for message in messages if message not in there]

    def _record(self, path: Path, messages: list[Message], *, done: bool) -> None:
        write_durably(path, json.dumps({"messages": messages, "done": done}))


def _once(sink: Sink) -> Sink:
    """A sink for rows that are no batch of a query."""
    options = {name: text for name, text in sink.options.items() if name.lower() != "ifbehind"}
    if sink.format in (DELTA, ICEBERG):
        options = {k: v for k, v in options.items() if k.lower() != "checkreplay"}
        options["checkReplay"] = "false"  # a replay that goes on may have other steps
    upsert = None if sink.upsert is None else replace(sink.upsert, if_behind="fail")
    return replace(sink, options=options, upsert=upsert)


def _shown(message: Message) -> str:
    return f"message {message[1]} of {message[0]}"
