"""How a step decodes payloads: the keys ``json``, ``msgpack``, ``cbor``, ``avro`` and ``protobuf``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from pelton.pipeline.description.document import Section, Text
from pelton.pipeline.description.fields import Fields
from pelton.pipeline.description.keys import FORMATS, PAYLOADS, names
from pelton.pipeline.description.model import Decoding
from pelton.spark.parsing import OptionError, count, parse
from pelton.spark.servers import SERVER_ROWS, take_servers

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from pelton.pipeline.description.problems import Problems
    from pelton.spark.payloads.formats import Format
    from pelton.spark.payloads.registry import Registry

ADD, FREEZE, REJECT = "add", "freeze", "reject"
FITS = "pelton fits"
"""Column of a step with ``evolve: reject``: whether the payload fits the schema."""
_ONE_SCHEMA = {"avro": ("schema", "registry"), "protobuf": ("descriptors", "registry")}
_OF_DATA = ("json", "msgpack", "cbor")
_NOWHERE = "none"


def expected(expect: dict[str, str], decoding: Decoding | None) -> dict[str, str]:
    """The conditions of a step, with that of ``evolve: reject``, which has the name of the format."""
    if decoding is None or decoding.evolve != REJECT:
        return expect
    return {decoding.name: f"`{FITS}`", **expect}


class PayloadSections:
    """Reads the section of a step that decodes payloads."""

    def __init__(
        self, servers: Mapping[str, Text], beside: Callable[[str], str], problems: Problems
    ) -> None:
        """``servers`` are options for connections; ``beside`` gives the path of a file beside the pipeline's."""
        self._servers = servers
        self._beside = beside
        self._problems = problems

    def of(self, step: Fields) -> Decoding | None:
        """The step's decoding; None if it has none, or one with faults."""
        given = [name for name in names(FORMATS) if step.has(name)]
        if not given:
            return None
        for other in given[1:]:
            step.take(other)
            step.problem(other, f"give either {given[0]} or {other}; another step can decode more")
        [name, *_] = given
        value, line = step.take(name), step.section.line_of(name)
        if isinstance(value, Text):
            key = "registry" if name in _ONE_SCHEMA and "://" in value.value else "schema"
            key = "descriptors" if name == "protobuf" and key == "schema" else key
            value = Section(line, {key: value}, {key: line})
        if value is not None and not isinstance(value, Section):
            step.problem(name, f"{name} must be keys and values: {name}: {{infer: 1000}}")
            return None
        section = Section(line) if value is None else Section(line, value.entries, value.lines)
        return self._decoding(name, Fields(f"{step.label}.{name}", section, self._problems))

    def _decoding(self, name: str, fields: Fields) -> Decoding | None:
        form, schema = self._form(name, fields)
        fixed = schema is not None or fields.has("descriptors") or name == "avro"
        types = fields.pairs("types", example='{id: long, amount: "decimal(10,2)"}')
        infer = fields.parsed("infer", count)
        evolve = fields.word("evolve", (ADD, FREEZE, REJECT))
        column = fields.text("column") if fields.has("column") else "data"
        into = fields.text("into") if fields.has("into") else "value"
        rescue = fields.text("rescue") if fields.has("rescue") else "_rescued"
        fields.finish(PAYLOADS)
        stated = name in _ONE_SCHEMA and not fields.has("registry")
        if stated and (types or infer is not None or evolve == ADD):
            what = "types" if types else "infer" if infer is not None else "evolve"
            fields.problem(what, f"{what} is for schemas that come from data; this one is given")
        if schema is not None and name in _OF_DATA and (types or infer is not None):
            what = "types" if types else "infer"
            fields.problem(what, f"give either schema or {what}")
        if evolve == REJECT and rescue == _NOWHERE:
            fields.problem("rescue", "rescue: none loses what evolve: reject looks for")
        if form is None:
            return None
        return Decoding(
            name=name,
            format=form,
            column=column or "data",
            into=into or "value",
            rescue=None if rescue == _NOWHERE else rescue,
            schema=schema if name in _OF_DATA else None,
            types=types,
            infer=infer or 1000,
            evolve=evolve or (FREEZE if stated or (fixed and name in _OF_DATA) else ADD),
        )

    def _form(self, name: str, fields: Fields) -> tuple[Format | None, str | None]:
        from pelton.spark.payloads import formats

        registry = self._registry(fields)
        schema = fields.text("schema") if fields.has("schema") else None
        descriptors = fields.text("descriptors") if fields.has("descriptors") else None
        message = fields.text("message") if fields.has("message") else None
        if name in _OF_DATA:
            plain: dict[str, Format] = {
                "json": formats.Json(),
                "msgpack": formats.MessagePack(),
                "cbor": formats.Cbor(),
            }
            self._only(name, fields, ())
            return plain[name], schema
        one, other = _ONE_SCHEMA[name]
        self._only(name, fields, (one, other, *(["message"] if one == "descriptors" else [])))
        if fields.has(one) == fields.has(other):
            fields.problem(one, f"give either {one} or {other}")
            return None, None
        if registry is None and fields.has(other):
            return None, None
        try:
            if name == "avro":
                text = None if schema is None else self._text_of(schema)
                found: Format = formats.Avro(text, registry)
            else:
                data = None if descriptors is None else self._bytes_of(descriptors)
                found = formats.Protobuf(data, message, registry)
            found.stated()
        except OSError as error:
            fields.problem(one, f"cannot read {schema or descriptors}: {error.strerror}")
            return None, None
        except (OptionError, ModuleNotFoundError) as wanted:
            said = f"{one} must be {wanted}" if isinstance(wanted, OptionError) else str(wanted)
            fields.problem(one, said)
            return None, None
        return found, None

    def _only(self, name: str, fields: Fields, known: tuple[str, ...]) -> None:
        for key in ("registry", "descriptors", "message"):
            if fields.has(key) and key not in known:
                fields.problem(key, f"{key} is not for {name}")

    def _registry(self, fields: Fields) -> Registry | None:
        text = fields.text("registry") if fields.has("registry") else None
        if text is None:
            return None
        from pelton.spark.payloads.registry import Registry

        given = {name: each.value for name, each in self._servers.items()}
        return Registry(text, take_servers(parse(SERVER_ROWS, given, format_name="registry")))

    def _text_of(self, schema: str) -> str:
        if schema.lstrip().startswith(("{", "[", '"')):
            return schema
        return Path(self._beside(schema)).read_text(encoding="utf-8", errors="replace")

    def _bytes_of(self, path: str) -> bytes:
        return Path(self._beside(path)).read_bytes()
