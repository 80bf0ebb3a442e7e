"""Subjects in files, and values of manifests that mean "not set", beside what a server makes of them."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pelton.apply.kubernetes import CONSUMER, KEY_VALUE, OBJECT_STORE, STREAM
from pelton.apply.model import Declared
from pelton.apply.reading import read
from pelton.apply.tables import Table
from pelton.apply.terraform import File
from pelton.core.protocol.subjects import collide
from pelton.engine.base.subject_checks import is_literal, is_valid

TEXTS = st.text(alphabet="ab.*> \t", max_size=6)


def declared(*documents: dict[str, Any]) -> Declared:
    return read([File("a.json", "\n".join(map(json.dumps, documents)))])


@given(st.lists(TEXTS, min_size=1, max_size=4))
def test_a_stream_has_the_subjects_that_a_server_takes(subjects: list[str]) -> None:
    problems = [str(each) for each in declared({"name": "S", "subjects": subjects}).problems]
    wrong = {each for each in subjects if not is_valid(each)}
    assert all(
        any(f'"{each}" is not a valid subject' in line for line in problems) for each in wrong
    )
    places = range(len(subjects))
    crossed = any(collide(subjects[i], subjects[j]) for i in places for j in places if i < j)
    assert bool(problems) == bool(wrong or crossed)


@given(TEXTS, TEXTS)
def test_a_consumer_has_the_subjects_that_a_server_takes(pattern: str, target: str) -> None:
    config = {"durable_name": "c", "filter_subject": pattern, "deliver_subject": target}
    problems = declared({"stream_name": "S", "config": config}).problems
    good = not pattern or is_valid(pattern)
    assert bool(problems) == (
        not good or (bool(target) and not (is_valid(target) and is_literal(target)))
    )


@pytest.mark.parametrize(
    "field",
    [
        {"mirror": {"name": "O", "filter_subject": "a..b"}},
        {"sources": [{"name": "O", "filter_subject": "a b"}]},
        {"sources": [{"name": "O", "subject_transforms": [{"src": ".a", "dest": "b"}]}]},
        {"subject_transform": {"src": "a.", "dest": "b"}},
        {"republish": {"src": ">.a", "dest": "b"}},
    ],
)
def test_a_pattern_within_a_stream_is_checked(field: dict[str, Any]) -> None:
    (problem,) = declared({"name": "S"} | field).problems
    assert "is not a valid subject" in str(problem)
    assert problem.place.column > 1


def manifest(kind: str, spec: dict[str, Any]) -> dict[str, Any]:
    version = "jetstream.nats.io/v1beta2"
    return {"apiVersion": version, "kind": kind, "metadata": {"name": "x"}, "spec": spec}


def unset(table: Table, given: dict[str, Any]) -> dict[str, Any]:
    """Every field of a table with a value that means "not set"."""
    numbers = ("max", "history", "replicas", "optStartSeq", "firstSequence", "rateLimitBps")
    texts = ("maxAge", "maxRequestExpires")
    spec: dict[str, Any] = {}
    for name, attribute in table.items():
        if attribute.within is not None:
            spec[name] = {}
        elif name.startswith(numbers) and name not in texts:
            spec[name] = 0
        else:
            spec[name] = ""
    return spec | given


@pytest.mark.parametrize(
    ("kind", "table", "given"),
    [
        ("Stream", STREAM, {"name": "S", "subjects": ["a"], "storage": "file"}),
        ("Stream", STREAM, {"name": "S", "subjects": ["a"], "metadata": {"a": ""}}),
        ("Stream", STREAM, {"name": "S", "sources": [{"name": "O", "optStartTime": ""}]}),
        ("Consumer", CONSUMER, {"streamName": "S", "durableName": "c", "deliverPolicy": ""}),
        ("KeyValue", KEY_VALUE, {"bucket": "B"}),
        ("ObjectStore", OBJECT_STORE, {"bucket": "O"}),
    ],
)
def test_a_manifest_as_kubernetes_returns_it(
    kind: str, table: Table, given: dict[str, Any]
) -> None:
    written = {name: each for name, each in given.items() if each != ""}
    plain = declared(manifest(kind, written))
    returned = declared(manifest(kind, unset(table, given)))
    assert not plain.problems
    assert not returned.problems
    (one,), (other,) = plain.resources, returned.resources
    assert one.config == other.config


def test_an_unknown_key_is_a_mistake_also_without_a_value() -> None:
    (problem,) = declared(manifest("Stream", {"name": "S", "subject": ""})).problems
    assert 'unknown key "subject"; did you mean "subjects"?' in str(problem)
