"""Targets: what a pipeline file overrides for development, production and so on.

A target is merged into the document before anything else reads it, as a JSON merge patch (RFC 7396)::

    document                                target prod
    sinks: {table: {from: raw, path: a}}    sinks: {table: {path: s3://b/a}}

    sinks: {table: {from: raw, path: s3://b/a}}

Keys of sections are merged, every other value is replaced, and a key without a value is removed.
Overridden keys have the lines of the target, so faults name them. The name of the target becomes a
part of the pipeline's name and of its state folder: no target continues the state of another one.
"""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING

from pelton.pipeline.description.document import Section, Text
from pelton.pipeline.description.problems import did_you_mean

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pelton.pipeline.description.problems import Problems

TARGETS = "targets"
DEFAULT = "default"
VARIABLE = "PELTON_TARGET"
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,31}")
_ON_ALL_MACHINES = re.compile(r"(/|\w+://)(?!.*\$\{)")
_OWN = ("pipeline", "state")


def chosen_target(
    document: Section, wanted: str | None, environment: Mapping[str, str], problems: Problems
) -> str | None:
    """The name of the target to use; None for a file without targets, and after a fault.

    ``wanted`` is the user's choice. After it come the variable PELTON_TARGET, the target with
    ``default: true``, and a target that is the only one.
    """
    value = document.entries.get(TARGETS)
    line = document.line_of(TARGETS)
    if TARGETS not in document.entries:
        if wanted is not None:
            problems.add(1, f"there is no target {wanted}: the file has no section targets")
        return None
    if not isinstance(value, Section) or not value.entries:
        problems.add(line, f"targets must be names with keys each: {_EXAMPLE}")
        return None
    targets = _targets(value, problems)
    name = wanted or environment.get(VARIABLE)
    if name is not None and name not in value.entries:
        where = "" if wanted else f", which {VARIABLE} names"
        problems.add(line, f"there is no target {name}{where}{did_you_mean(name, targets)}")
        return None
    if name is not None:
        return name if name in targets else None
    defaults = [each for each, section in targets.items() if _is_default(section, problems)]
    if len(defaults) > 1:
        problems.add(line, f"only one target can have default: true, not {' and '.join(defaults)}")
    elif defaults or len(value.entries) == 1:
        return next(iter(defaults or targets), None)
    elif targets:
        problems.add(
            line,
            f"which target? --target or {VARIABLE} names one of {', '.join(targets)};"
            " default: true in one of them makes it the default",
        )
    return None


_EXAMPLE = "{dev: {defaults: {servers: nats://127.0.0.1}}, prod: {...}}"


def _targets(value: Section, problems: Problems) -> dict[str, Section]:
    found = {}
    for name, one in value.entries.items():
        line = value.lines[name]
        if not _NAME.fullmatch(name):
            right = "letters, digits, '-' and '_', 32 at most"
            problems.add(line, f"targets: {name!r} is not a valid name: {right}")
        elif one is None:
            found[name] = Section(line)
        elif isinstance(one, Section):
            found[name] = one
        else:
            problems.add(line, f"targets.{name}: must be keys and values, as in {_EXAMPLE}")
    return found


def _is_default(target: Section, problems: Problems) -> bool:
    value = target.entries.get(DEFAULT)
    text = value.value.lower() if isinstance(value, Text) else ""
    if DEFAULT in target.entries and text not in ("true", "false"):
        problems.add(target.line_of(DEFAULT), "default must be true or false")
    return text == "true"


def with_target(document: Section, name: str | None) -> Section:
    """The document with a target merged into it, without the section of targets."""
    base = _without(document, TARGETS)
    targets = document.entries.get(TARGETS)
    if name is None or not isinstance(targets, Section):
        return base
    given = targets.entries.get(name)
    target = _without(given, DEFAULT) if isinstance(given, Section) else Section(base.line)
    for key in _OWN:
        own = base.entries.get(key)
        if key not in target.entries and isinstance(own, Text):
            named = replace(own, value=f"{own.value}-{name}", shown=f"{own.shown}-{name}")
            base = replace(base, entries={**base.entries, key: named})
    return _merged(base, target)


def _without(section: Section, key: str) -> Section:
    return Section(
        section.line,
        {name: each for name, each in section.entries.items() if name != key},
        {name: each for name, each in section.lines.items() if name != key},
    )


def _merged(base: Section, over: Section) -> Section:
    entries, lines = dict(base.entries), dict(base.lines)
    for name, value in over.entries.items():
        before = entries.get(name)
        if value is None:
            entries.pop(name, None)
            lines.pop(name, None)
        elif isinstance(before, Section) and isinstance(value, Section):
            entries[name] = _merged(before, value)
        else:
            entries[name], lines[name] = value, over.lines[name]
    return Section(base.line, entries, lines)


def warn_of_one_place(document: Section, name: str, problems: Problems) -> None:
    """Warn of sinks that another target writes to the same URL or absolute path."""
    targets = document.entries.get(TARGETS)
    assert isinstance(targets, Section)
    places = _places(with_target(document, name))
    for other in targets.entries:
        for sink, (line, place) in places.items() if other != name else ():
            if _places(with_target(document, other)).get(sink, (0, ""))[1] == place:
                problems.warn(
                    line,
                    f"sinks.{sink}: targets {name} and {other} both write to {place}: give it"
                    f" another place in one of them, or a place with ${{{VARIABLE}}}",
                )


def _places(document: Section) -> dict[str, tuple[int, str]]:
    """The place of each sink that is the same on all machines, with its line."""
    sinks = document.entries.get("sinks")
    found = {}
    for name, sink in sinks.entries.items() if isinstance(sinks, Section) else ():
        if not isinstance(sink, Section):
            continue
        for key in ("path", "upsert"):
            place = sink.entries.get(key)
            if isinstance(place, Text) and _ON_ALL_MACHINES.match(place.value):
                found[name] = sink.line_of(key), place.value
    return found
