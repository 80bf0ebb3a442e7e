"""Subjects of declared streams and consumers that no server takes, each with its place."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pelton.core.protocol.overlaps import TooManyStepsError, first_collision
from pelton.core.protocol.subjects import literal, valid

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pelton.apply.model import Declared, Node

_MOST_STEPS = 100_000
_LISTS = ("subjects", "filter_subjects")
# field -> the fields with patterns inside of it
_WITHIN = {
    "mirror": ("filter_subject", "subject_transforms"),
    "sources": ("filter_subject", "subject_transforms"),
    "subject_transforms": ("src",),
    "subject_transform": ("src",),
    "republish": ("src",),
}
_ONE = ("filter_subject", "src", "deliver_subject")


def check_subjects(declared: Declared, node: Node) -> None:
    """Note the invalid subjects in a map with the fields of a stream or consumer."""
    assert isinstance(node.value, dict)
    for name, inner in node.value.items():
        if name not in (*_WITHIN, *_LISTS, *_ONE):
            continue
        for field, each in _patterns(name, inner):
            if each.value == "" and field not in _LISTS:
                continue  # not set
            if not isinstance(each.value, str):
                continue  # noted as a wrong type
            if not valid(each.value):
                declared.wrong(each.at, f'{field}: "{each.value}" is not a valid subject')
            elif field == "deliver_subject" and not literal(each.value):
                declared.wrong(each.at, f'{field}: "{each.value}" has a wildcard')
        if name in _LISTS:
            _check_overlap(declared, name, inner)


def _patterns(name: str, node: Node) -> Iterator[tuple[str, Node]]:
    """The texts that are patterns, with the names of their fields."""
    if isinstance(node.value, list):
        for each in node.value:
            yield from _patterns(name, each)
    elif isinstance(node.value, dict):
        for inner in _WITHIN.get(name, ()):
            if inner in node.value:
                yield from _patterns(inner, node.value[inner])
    elif name not in _WITHIN:
        yield name, node


def _check_overlap(declared: Declared, name: str, node: Node) -> None:
    items = node.value if isinstance(node.value, list) else []
    subjects = [each.value for each in items if isinstance(each.value, str) and valid(each.value)]
    if len(subjects) != len(items):
        return  # it has other mistakes
    try:
        pair = first_collision(subjects, len(subjects), _MOST_STEPS)
    except TooManyStepsError:
        return  # the server decides
    if pair is not None:
        one, other = (subjects[at] for at in pair)
        declared.wrong(items[pair[1]].at, f'{name}: "{other}" overlaps with "{one}"')
