"""What a pipeline file says, as plain keys and values, kept in the state folder for the next run.

``definition.json`` has the keys that the last run had, each with its value after variables were
filled in, paths made absolute and defaults applied. So a change of a variable is a change, and another
spelling of the same thing is none. Secrets are ``***``: they are not compared. A ``python`` step also
has a hash of the module's file.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import MISSING, dataclass, fields, is_dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from pelton.pipeline.description.document import Text
from pelton.pipeline.description.model import Call, Decoding, Upsert
from pelton.pipeline.description.options import secret
from pelton.pipeline.running.durable import write_durably

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from pelton.pipeline.description.model import Pipeline, Sink, Source, Step

RECORD = "definition.json"
TOP = "pipeline"
"""The part with the keys that belong to no source, step or sink."""
CODE = "code"
_VERSION = 1
_HIDDEN = "***"
_NAMES = {
    "inputs": "from",
    "input": "from",
    "path": "upsert",
    "own": "query",
    "trigger_seconds": "trigger",
    "keep_hours": "retention",
}
_MAPS = ("options", "storage")

Keys = dict[str, str]
Parts = dict[str, Keys]
"""The keys of each part, such as ``sinks.table``."""


@dataclass(frozen=True)
class Definition:
    """The parts of a pipeline as the last run had them; ``at`` is when it began."""

    parts: Parts
    at: str


def parts_of(pipeline: Pipeline) -> Parts:
    """The keys and values of a pipeline."""
    top = {"trigger": f"{pipeline.trigger_seconds:g}s"}
    top |= {f"defaults.{name}": value for name, value in pipeline.servers.items()}
    top |= {f"spark.{name.removeprefix('spark.')}": each for name, each in pipeline.spark.items()}
    if pipeline.metrics is not None:
        top |= {f"metrics.{name}": str(each) for name, each in vars(pipeline.metrics).items()}
    if pipeline.alerts is not None:
        top |= {f"alerts.{name}": str(each) for name, each in vars(pipeline.alerts).items()}
    if pipeline.lineage is not None:
        top |= {f"lineage.{_camel(name)}": str(v) for name, v in vars(pipeline.lineage).items()}
    found = {TOP: top}
    for kind in ("sources", "steps", "sinks"):
        for name, part in getattr(pipeline, kind).items():
            found[f"{kind}.{name}"] = dict(_keys(pipeline, part))
    return {
        part: {name: _shown(pipeline, name, value) for name, value in keys.items()}
        for part, keys in found.items()
    }


def _shown(pipeline: Pipeline, name: str, value: str) -> str:
    plain = name.removeprefix("defaults.").removeprefix("lineage.")
    return _HIDDEN if secret(plain, Text(value, 0, value)) else pipeline.hide(value)


def _keys(pipeline: Pipeline, part: Source | Step | Sink | Upsert) -> Iterator[tuple[str, str]]:
    for each in fields(part):
        value = getattr(part, each.name)
        if not each.compare or each.name in ("name", "line") or value == _default(each):
            continue
        name = _NAMES.get(each.name) or _camel(each.name)
        if isinstance(value, Upsert):
            yield from _keys(pipeline, value)
        elif isinstance(value, Call):
            yield name, str(value)
            yield from (("with", _text(value.arguments)),) if value.arguments else ()
            yield CODE, _code(pipeline.folder, value.module)
        elif isinstance(value, Decoding):
            yield value.name, _decoding(pipeline, value)
        elif each.name in _MAPS:
            prefix = "storage." if each.name == "storage" else ""
            yield from ((prefix + key, text) for key, text in value.items())
        elif is_dataclass(value):
            yield from ((f"{name}.{_camel(k)}", str(v)) for k, v in vars(value).items() if v)
        elif name == "query":
            yield name, "own" if value else "shared"
        else:
            yield name, _text(value)


def _default(each: Any) -> object:
    return each.default if each.default_factory is MISSING else each.default_factory()


def _camel(name: str) -> str:
    first, *more = name.split("_")
    return first + "".join(word.capitalize() for word in more)


def _text(value: object) -> str:
    if isinstance(value, str):
        return value
    if isinstance(value, tuple):
        return ", ".join(map(str, value))
    return json.dumps(value, default=str)


def _decoding(pipeline: Pipeline, decoding: Decoding) -> str:
    plain = {each.name: getattr(decoding, each.name) for each in fields(decoding)}
    made = plain.pop("format")
    form = pipeline.hide(repr(made)) if is_dataclass(made) else ""
    return _text({**plain, "format": _digest(form.encode())})


def _code(folder: Path, module: str) -> str:
    inside = folder.joinpath(*module.split("."))
    for path in (inside.with_suffix(".py"), inside / "__init__.py"):
        try:
            return _digest(path.read_bytes())
        except OSError:
            continue
    return "installed"


def _digest(data: bytes) -> str:
    return hashlib.blake2b(data, digest_size=8).hexdigest()


def record(pipeline: Pipeline) -> None:
    """Write down the definition of a run that has begun."""
    at = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    text = json.dumps({"version": _VERSION, "at": at, "parts": parts_of(pipeline)})
    write_durably(pipeline.state / RECORD, text)


def recorded(state: Path) -> Definition | None:
    """The definition of the last run; None if there is none that can be read.

    It only serves to tell what has changed, so a run never fails because of it.
    """
    try:
        data = json.loads((state / RECORD).read_text())
        parts = {
            str(part): {str(name): str(value) for name, value in keys.items()}
            for part, keys in data["parts"].items()
        }
        return Definition(parts, str(data["at"]))
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None


def differences(before: Keys, now: Keys) -> dict[str, tuple[str | None, str | None]]:
    """The keys that differ, each with both values; None where the key is missing."""
    names = dict.fromkeys([*before, *now])
    return {
        name: (before.get(name), now.get(name))
        for name in names
        if before.get(name) != now.get(name)
    }
