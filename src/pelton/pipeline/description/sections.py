"""Reads one source, step or sink from its section of the file."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from pelton.pipeline.description import options as formats
from pelton.pipeline.description.document import Section, Text
from pelton.pipeline.description.fields import Fields
from pelton.pipeline.description.formats import (
    STATIC,
    STREAMED,
    WRITTEN,
    unknown_format,
    wrong_format,
)
from pelton.pipeline.description.keys import REGISTER, SINK, SOURCE, STEP, UPSERT, names
from pelton.pipeline.description.model import (
    DELTA,
    ICEBERG,
    REJECT,
    STREAM_FORMATS,
    Call,
    Registration,
    Sink,
    Source,
    Step,
    Upsert,
)
from pelton.pipeline.description.payloads import PayloadSections, expected
from pelton.pipeline.description.problems import SHORTEST_SECRET
from pelton.spark.holding import BEGIN, FAIL, FILL
from pelton.spark.parsing import OptionError, count

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pelton.pipeline.description.document import Value
    from pelton.pipeline.description.keys import Key
    from pelton.pipeline.description.problems import Problems

_MODES = ("append", "update", "complete")
_CALL = re.compile(r"([A-Za-z_][\w.]*):([A-Za-z_]\w*)")
_WATERMARK = re.compile(r"(\S+)\s+(\S.*)")
# Spark's own file formats; their sinks take the key partitionBy.
_WITH_FOLDERS = frozenset({"parquet", "json", "csv", "orc", "text", "xml"})


class Sections:
    """Reads sections into parts of a pipeline, and collects the secrets in them."""

    def __init__(self, folder: Path, defaults: dict[str, Text], problems: Problems) -> None:
        """``defaults`` are options for connections and object stores."""
        self.secrets: set[str] = set()
        self._folder = folder
        self._problems = problems
        self._defaults = defaults
        self._note_secrets(defaults)

    def source(self, name: str, value: Value, line: int) -> Source | None:
        """A source; None if it has too many faults."""
        fields = self._fields(f"sources.{name}", value, line, SOURCE)
        if fields is None:
            return None
        format_name = fields.text("format", required="jetstream")
        schema = fields.text("schema") if fields.has("schema") else None
        static = fields.flag("static")
        given = self._options(fields, format_name or "")
        if format_name is None:
            return None
        if wrong := wrong_format(format_name, STATIC if static else STREAMED, "read"):
            fields.problem("format", wrong)
        elif not static and schema is None and format_name in formats.NEED_SCHEMA:
            fields.problem(
                "format", f"a stream of {format_name} needs a schema: id long, name string"
            )
        if format_name in ("jetstream", "jetstream_kv") and not static:
            folded = {option.lower() for option in given}
            if "startingoffsets" not in folded:
                given["startingOffsets"] = Text("earliest", line, "earliest")
        if format_name == "jetstream" and not static:
            self._no_consumer(given)
        if unknown_format(format_name):
            fields.warn("format", _UNKNOWN.format(format_name))
        wrong_options = list(formats.check_source(format_name, given, static=static))
        self._tell(fields, wrong_options)
        if not wrong_options and (doubt := formats.empty_range(format_name, given, static=static)):
            fields.warn("endingOffsets", doubt)
        return Source(name, line, format_name, _texts(given), schema, static, fields.lines())

    def step(self, name: str, value: Value, line: int) -> Step | None:
        """A step; None if it has too many faults."""
        fields = self._fields(f"steps.{name}", value, line, STEP)
        if fields is None:
            return None
        inputs = fields.texts("from", example="from: raw")
        if not inputs and not fields.has("from"):
            fields.problem("from", "from is missing: which source or step is read?")
        call = self._call(fields)
        sql = fields.text("sql") if fields.has("sql") else None
        decoding = PayloadSections(self._connecting(), self.beside, self._problems).of(fields)
        step = Step(
            name,
            line,
            inputs,
            python=call,
            sql=sql,
            decoding=decoding,
            watermark=_watermark(fields),
            where=fields.text("where") if fields.has("where") else None,
            columns=fields.pairs("columns", example="{total: price * amount}"),
            select=fields.expressions("select", example="[id, upper(name) as name]"),
            drop=fields.texts("drop", example="[raw]"),
            expect=expected(fields.pairs("expect", example="{has_id: id is not null}"), decoding),
            on_error=fields.word("onError", ("fail", REJECT)) or "fail",
            lines=fields.lines(),
        )
        fields.finish(STEP)
        if call is not None and sql is not None:
            fields.problem("sql", "give either python or sql")
        if len(set(inputs)) < len(inputs):
            fields.problem("from", "an input is named twice")
        for each in inputs if sql is not None else ():
            word = each.replace(".", "_")
            if not re.search(rf"\b{re.escape(word)}\b", sql or ""):
                fields.problem("sql", f"the query does not read {word}, which is in from")
        does = (
            call,
            sql,
            decoding,
            step.watermark,
            step.where,
            step.columns,
            step.select,
            step.drop,
        )
        if not any(does) and not step.rejects and len(inputs) == 1:
            what = names(STEP)[1:]
            fields.problem("from", f"the step does nothing; it can have {', '.join(what)}")
        return step

    def sink(self, name: str, value: Value, line: int) -> Sink | None:
        """A sink; None if it has too many faults."""
        fields = self._fields(f"sinks.{name}", value, line, (*SINK, *UPSERT))
        if fields is None:
            return None
        made = Sink(
            name,
            line,
            fields.text("from", required="raw") or "",
            where=fields.text("where") if fields.has("where") else None,
            select=fields.expressions("select", example="[id, name]"),
            mode=fields.word("mode", _MODES) or "append",
            trigger_seconds=fields.seconds("trigger"),
            lines=fields.lines(),
        )
        query = fields.word("query", ("shared", "own"))
        made = replace(made, own=query == "own", register=self._registration(fields))
        if fields.has("format") == fields.has("upsert"):
            fields.problem(
                "format", "give either format or upsert, such as format: jetstream_delta"
            )
            return None
        if fields.has("upsert"):
            upsert = self._upsert(fields)
            fields.finish((*SINK, *UPSERT))
            made = replace(made, upsert=upsert)
        else:
            made = self._formatted(fields, made)
        delta = made.format == DELTA if made.upsert is None else made.upsert.catalog is None
        if made.register is not None and not delta:
            fields.problem("register", "register is for upsert and format: jetstream_delta")
        if not made.input or (made.upsert is None and made.format is None):
            return None
        if query == "shared" and not made.shareable:
            fields.problem(
                "query",
                "only jetstream formats and upsert, with mode append and without a trigger, can"
                " share a query; leave query out",
            )
        return made

    def _registration(self, fields: Fields) -> Registration | None:
        value = fields.take("register")
        if value is None:
            return None
        if not isinstance(value, Section):
            fields.problem(
                "register", "register must be keys and values: {unity: URL, table: a.b.c}"
            )
            return None
        line = fields.section.line_of("register")
        inner = self._fields(f"{fields.label}.register", value, line, REGISTER)
        if inner is None:
            return None
        made = Registration(
            **{key.name: inner.text(key.name) if inner.has(key.name) else None for key in REGISTER}  # type: ignore[arg-type]  # table is checked below
        )
        inner.finish(REGISTER)
        if isinstance(token := value.entries.get("token"), Text):
            self._note_secrets({"token": token})
        if (made.unity is None) == (made.glue is None):
            inner.problem("unity", "give either unity or glue")
        parts = 3 if made.unity is not None else 2
        if made.table is None or len(list(filter(None, made.table.split(".")))) != parts:
            form = "catalog.schema.table" if parts == 3 else "database.table"
            inner.problem("table", f"table must be {form}")
        return made

    def _formatted(self, fields: Fields, sink: Sink) -> Sink:
        format_name = fields.text("format") or ""
        in_folders = format_name in _WITH_FOLDERS
        partition_by = fields.texts("partitionBy", example="[day]") if in_folders else ()
        given = self._options(fields, format_name)
        if not format_name:
            return sink
        if wrong := wrong_format(format_name, WRITTEN, "written"):
            fields.problem("format", wrong)
        if format_name in STREAM_FORMATS and sink.mode == "complete":
            fields.problem("mode", "streams and buckets take mode append or update")
        if format_name == DELTA and sink.mode == "update":
            fields.problem("mode", "jetstream_delta takes append or complete; upsert takes update")
        if in_folders and not any(option.lower() == "path" for option in given):
            fields.problem("format", f"{format_name} needs a path")
        if in_folders and sink.mode != "append":
            fields.problem("mode", f"{format_name} takes only append")
        if unknown_format(format_name):
            fields.warn("format", _UNKNOWN.format(format_name))
        if format_name == ICEBERG and sink.mode == "update":
            fields.problem("mode", "jetstream_iceberg takes append or complete")
        self._tell(fields, formats.check_sink(format_name, given, streaming=True))
        return replace(sink, format=format_name, options=_texts(given), partition_by=partition_by)

    def _upsert(self, fields: Fields) -> Upsert | None:
        from pelton.spark.iceberg.options import DEFAULT_CATALOG, address
        from pelton.spark.tables.aside_options import SIDE, AsideOptions
        from pelton.spark.tables.options import KEEP_HOURS, hours
        from pelton.spark.tables.places import place

        for key in ("partitionBy", "options"):
            if fields.take(key) is not None:
                fields.problem(key, f"{key} is for format; upsert does not have it")
        path = fields.text("upsert")
        keys = fields.texts("keys", example="[id]")
        if not keys and not fields.has("keys"):
            fields.problem("upsert", "keys is missing: which columns identify a row? keys: [id]")
        sequence = fields.text("sequence") if fields.has("sequence") else "seq"
        sums = fields.texts("sums", example="[amount]")
        delete_when = fields.text("deleteWhen") if fields.has("deleteWhen") else None
        if sums and delete_when is not None:
            fields.problem("sums", "sums of rows that deleteWhen removes are unknown")
        keep_deleted = fields.parsed("keepDeleted", hours)
        history = fields.flag("history")
        _check_history(fields)
        merge_schema = fields.flag("mergeSchema")
        if_behind = fields.word("ifBehind", (FAIL, BEGIN, FILL)) or FAIL
        maintain_every = fields.parsed("maintainEvery", count)
        keep_hours = fields.parsed("retention", hours) or KEEP_HOURS
        on_row_error = fields.word("onRowError", (FAIL, SIDE)) or FAIL
        error_path = fields.text("errorPath") if fields.has("errorPath") else None
        storage = {name: text for name, text in self._defaults.items() if is_storage(name)}
        storage |= _taken(fields, "storage.")
        properties = _texts(of_catalog := _taken(fields, "catalog."))
        self._note_secrets(storage | of_catalog)
        catalog = fields.text("catalog") if fields.has("catalog") else None
        catalog = catalog or (DEFAULT_CATALOG if properties else None)
        if path is None or not keys or sequence is None:
            return None
        path = path if catalog is not None else self.beside(path)
        short_properties = {name.partition(".")[2]: text for name, text in properties.items()}
        try:
            if catalog is None:
                place(path)
            else:
                address(path, catalog, short_properties)
        except OptionError as error:
            fields.problem("upsert", str(error))
        if error_path is not None:
            error_path = self.beside(error_path)
        try:
            AsideOptions(on_row_error, error_path)
        except OptionError as error:
            fields.problem("onRowError" if error_path is None else "errorPath", str(error))
        short = {name.partition(".")[2]: text for name, text in _texts(storage).items()}
        return Upsert(
            path,
            keys,
            sequence,
            sums,
            delete_when,
            merge_schema,
            short,
            if_behind,
            maintain_every,
            keep_hours,
            on_row_error,
            error_path,
            catalog,
            short_properties,
            keep_deleted,
            history,
        )

    def _fields(self, label: str, value: Value, line: int, known: tuple[Key, ...]) -> Fields | None:
        if isinstance(value, Section):
            return Fields(label, Section(line, value.entries, value.lines), self._problems)
        keys = ", ".join(names(known)[:3])
        self._problems.add(line, f"{label}: must be keys and values ({keys}, ...)")
        return None

    def _connecting(self) -> dict[str, Text]:
        return {name: text for name, text in self._defaults.items() if not is_storage(name)}

    def _call(self, fields: Fields) -> Call | None:
        given = fields.text("python") if fields.has("python") else None
        arguments = fields.data("with")
        if given is None:
            if fields.has("with") and not fields.has("python"):
                fields.problem("with", "with is for python, which is missing")
            return None
        match = _CALL.fullmatch(given)
        if match is None:
            fields.problem("python", f"python is {given!r}, but must be module:function")
            return None
        return Call(match[1], match[2], arguments)

    def _options(self, fields: Fields, format_name: str) -> dict[str, Text]:
        """The options of a source or sink, with the file's defaults for its format.

        A part with its own ``servers`` gets no connection defaults: they may be secrets of others.
        """
        given = fields.options()
        folded = {name.lower() for name in given}
        ours: dict[str, Text] = {}
        for name, text in self._defaults.items():
            if is_storage(name):
                wanted = format_name == DELTA
            else:
                wanted = format_name in STREAM_FORMATS and "servers" not in folded
            if wanted and name.lower() not in folded:
                ours[name] = text
        self._note_secrets(given)
        made = {**ours, **given}
        return {name: self._beside_file(name, text) for name, text in made.items()}

    def _beside_file(self, name: str, text: Text) -> Text:
        if name.lower() not in formats.PATHS:
            return text
        value = self.beside(text.value)
        return text if value == text.value else Text(value, text.line, text.shown)

    def beside(self, path: str) -> str:
        """An absolute path; a relative one starts at the folder of the file."""
        if "://" in path or path.startswith("file:") or not path:
            return path
        return str((self._folder / Path(path).expanduser()).absolute())

    def _no_consumer(self, given: dict[str, Text]) -> None:
        """Handle ``consumer: none``, which means no shadow consumer; the format does not know it."""
        for name in [name for name in given if name.lower() == "consumer"]:
            if given[name].value.lower() in ("none", "false"):
                given[name] = Text(NO_CONSUMER, given[name].line, given[name].shown)

    def _tell(self, fields: Fields, wrong: Iterable[tuple[str, str]]) -> None:
        for name, text in wrong:
            fields.problem(name or "format", text)

    def _note_secrets(self, given: dict[str, Text]) -> None:
        for name, text in given.items():
            if formats.secret(name, text) and len(text.value) > SHORTEST_SECRET:
                self.secrets.add(text.value)


_UNKNOWN = "format {} is not known here; Spark's session must have it"
NO_CONSUMER = "none"
"""The value of ``consumer`` for a source without a shadow consumer."""


def is_storage(name: str) -> bool:
    """Whether an option is for an object store."""
    return name.lower().startswith("storage.")


def _taken(fields: Fields, prefix: str) -> dict[str, Text]:
    """Take the keys whose names begin so."""
    names = [name for name in fields.section.entries if name.lower().startswith(prefix)]
    found = {name: fields.take(name) for name in names}
    return {name: value for name, value in found.items() if isinstance(value, Text)}


def _texts(given: dict[str, Text]) -> dict[str, str]:
    return {name: text.value for name, text in given.items()}


def _check_history(fields: Fields) -> None:
    if fields.has("keepDeleted") and not fields.has("deleteWhen"):
        fields.problem("keepDeleted", "keepDeleted is for deleteWhen, which is missing")
    for what in ("sums", "keepDeleted"):
        if fields.has("history") and fields.has(what):
            fields.problem("history", f"a history has every row; leave out {what}")


def _watermark(fields: Fields) -> tuple[str, str] | None:
    text = fields.text("watermark") if fields.has("watermark") else None
    if text is None:
        return None
    match = _WATERMARK.fullmatch(text)
    if match is None:
        fields.problem(
            "watermark", f"watermark is {text!r}, but must be a column and a delay: ts 10 minutes"
        )
        return None
    return match[1], match[2]
