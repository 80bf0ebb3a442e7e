"""Plans: what is created, updated, replaced, refused and deleted, in which order, and what a plan says of it."""

from __future__ import annotations

import pytest

from pelton.api import ConsumerConfig, StreamConfig, StreamSource
from pelton.apply.executing import DataLossError, check
from pelton.apply.inspecting import Live, LiveConsumer, LiveStream
from pelton.apply.model import Declared, Place, Resource
from pelton.apply.planning import Plan, plan
from pelton.apply.showing import as_json, lines
from pelton.errors import PeltonError

PLACE = Place("x.json", 1, 1)


def stream(name: str, prevent_update: bool = False, **fields: object) -> Resource:
    config = StreamConfig(name=name, **fields)  # type: ignore[arg-type]  # fields by name
    return Resource("stream", name, config, PLACE, prevent_update=prevent_update)


def consumer(of: str, name: str, **fields: object) -> Resource:
    config = ConsumerConfig(durable_name=name, name=name, **fields)  # type: ignore[arg-type]  # fields by name
    return Resource("consumer", of, config, PLACE, name)


def live(*resources: Resource, messages: int = 0, delivered: int = 0) -> Live:
    found = Live()
    for each in resources:
        if isinstance(each.config, StreamConfig):
            found.streams[each.stream] = LiveStream(each.config, messages)
        else:
            found.consumers[each.key] = LiveConsumer(each.config, delivered)
    return found


def made(found: Plan) -> list[tuple[str, str]]:
    return [(each.action, each.title) for each in found.changes]


def test_origins_come_before_their_mirrors_and_streams_before_consumers() -> None:
    resources = [
        consumer("COPY", "c"),
        stream("COPY", mirror=StreamSource(name="A")),
        stream("B", sources=[StreamSource(name="A"), StreamSource(name="COPY")]),
        stream("A"),
    ]
    assert made(plan(Declared(resources), Live())) == [
        ("create", "stream A"),
        ("create", "stream COPY"),
        ("create", "stream B"),
        ("create", "consumer COPY > c"),
    ]


def test_a_stream_gives_up_a_subject_before_another_one_takes_it() -> None:
    there = live(stream("A", subjects=["a", "b"]), stream("B", subjects=["c"]))
    wanted = [stream("B", subjects=["c", "b"]), stream("A", subjects=["a"])]
    assert made(plan(Declared(wanted), there)) == [("update", "stream A"), ("update", "stream B")]


def test_a_replacement_says_what_it_loses_and_needs_leave() -> None:
    there = live(stream("A"), consumer("A", "c"), messages=3, delivered=2)
    wanted = Declared([stream("A", storage="memory"), consumer("A", "c")])
    found = plan(wanted, there)
    assert made(found) == [("replace", "stream A"), ("replace", "consumer A > c")]
    assert found.changes[0].loss == "3 messages and positions of 1 consumer"
    with pytest.raises(DataLossError, match="3 messages"):
        check(found, allow_data_loss=False)
    check(found, allow_data_loss=True)
    check(plan(wanted, live(stream("A"))), allow_data_loss=False)


def test_what_a_declaration_forbids_is_refused() -> None:
    found = plan(Declared([stream("A", prevent_update=True, max_msgs=5)]), live(stream("A")))
    assert made(found) == [("refuse", "stream A")]
    with pytest.raises(PeltonError, match="its declaration forbids updates"):
        check(found, allow_data_loss=True)
    same = plan(Declared([stream("A", prevent_update=True)]), live(stream("A")))
    assert made(same) == [("keep", "stream A")]


def test_a_consumer_needs_its_stream() -> None:
    assert made(plan(Declared([consumer("A", "c")]), Live())) == [("refuse", "consumer A > c")]
    assert made(plan(Declared([consumer("A", "c")]), live(stream("A")))) == [
        ("create", "consumer A > c")
    ]


def test_only_what_the_owner_manages_is_deleted() -> None:
    own, other = {"managed-by": "me"}, {"managed-by": "you"}
    there = live(
        stream("MINE", metadata=own),
        stream("YOURS", metadata=other),
        stream("NOBODYS"),
        consumer("NOBODYS", "mine", metadata=own),
        consumer("MINE", "goes along", metadata=own),
    )
    found = plan(Declared([stream("NEW")]), there, owner="me", prune=True)
    assert made(found) == [
        ("delete", "consumer NOBODYS > mine"),
        ("delete", "stream MINE"),
        ("create", "stream NEW"),
    ]
    assert found.changes[-1].wanted is not None
    assert found.changes[-1].wanted.metadata == own
    assert not plan(Declared([]), there, owner="me").changes
    with pytest.raises(ValueError, match="an owner is needed"):
        plan(Declared([]), there, prune=True)


def test_another_owners_stream_is_refused_and_a_label_stays() -> None:
    there = live(stream("A", metadata={"managed-by": "you"}))
    assert made(plan(Declared([stream("A")]), there, owner="me")) == [("refuse", "stream A")]
    assert made(plan(Declared([stream("A")]), there)) == [("keep", "stream A")]


def test_the_order_of_subjects_and_what_servers_add_make_no_difference() -> None:
    there = live(stream("A", subjects=["b", "a"], metadata={"_nats.level": "4"}, max_msgs=-1))
    assert made(plan(Declared([stream("A", subjects=["a", "b"])]), there)) == [("keep", "stream A")]


def test_a_sealed_stream_is_never_replaced_by_a_new_one() -> None:
    assert made(plan(Declared([stream("A", sealed=True)]), Live())) == [("refuse", "stream A")]


def test_a_plan_for_people_and_for_programs() -> None:
    there = live(stream("LOGS"), stream("OLD"), messages=7)
    wanted = [
        stream("LOGS", max_bytes=10 * 2**30, max_age=86_400_000_000_000),
        stream("OLD", storage="memory"),
        stream("NEW", subjects=["new.>"]),
    ]
    found = plan(Declared(wanted), there)
    assert [each.text for each in lines(found)] == [
        "  ~ update stream LOGS  (x.json:1:1)",
        "      max_bytes  -1 (unlimited)  ->  10737418240 (10 GiB)",
        "      max_age    0 (none)        ->  24h",
        "-/+ replace stream OLD  (x.json:1:1)",
        "      because storage cannot change",
        "      loses 7 messages",
        "      storage  file  ->  memory",
        "  + create stream NEW  (x.json:1:1)",
        "      subjects          new.>",
        "      duplicate_window  2m",
        "Plan: 1 to create, 1 to update, 1 to replace.",
    ]
    data = as_json(found)
    assert data["totals"] == {
        "create": 1, "update": 1, "replace": 1, "delete": 0, "refuse": 0, "keep": 0,
    }  # fmt: skip
    assert data["changes"][0] == {
        "action": "update",
        "stream": "LOGS",
        "place": "x.json:1:1",
        "fields": [
            {"field": "max_bytes", "now": -1, "wanted": 10 * 2**30},
            {"field": "max_age", "now": 0, "wanted": 86_400_000_000_000},
        ],
    }


def test_a_subject_that_another_stream_has_is_refused_when_the_plan_is_made() -> None:
    there = live(stream("A", subjects=["a.>"]), stream("B", subjects=["b"]))
    found = plan(Declared([stream("C", subjects=["c", "*.x"]), consumer("C", "c")]), there)
    assert made(found) == [("refuse", "stream C"), ("refuse", "consumer C > c")]
    assert found.changes[0].reasons == ('its subject "*.x" overlaps with "a.>" of stream A',)
    found = plan(Declared([stream("C", subjects=["c.*", "c.x"])]), there)
    assert found.changes[0].reasons == ('its subjects "c.*" and "c.x" overlap',)
    both = [stream("C", subjects=["c"]), stream("D", subjects=["*"])]
    found = plan(Declared(both), live())
    assert made(found) == [("create", "stream C"), ("refuse", "stream D")]
    # a stream that stays as it is has the better right, wherever it is declared
    found = plan(
        Declared([stream("C", subjects=["b"]), stream("B", subjects=["b"])]), live(there_b())
    )
    assert made(found) == [("refuse", "stream C"), ("keep", "stream B")]


def there_b() -> Resource:
    return stream("B", subjects=["b"])


def test_subjects_may_move_from_a_stream_that_goes_or_gives_them_up() -> None:
    mine = {"managed-by": "me"}
    there = live(stream("A", subjects=["a"], metadata=mine))
    found = plan(Declared([stream("B", subjects=["a"])]), there, owner="me", prune=True)
    assert made(found) == [("delete", "stream A"), ("create", "stream B")]
    found = plan(Declared([stream("B", subjects=["a"])]), there, owner="you", prune=True)
    assert made(found) == [("refuse", "stream B")]
    wanted = [stream("B", subjects=["a"]), stream("A", subjects=["z"], metadata=mine)]
    assert made(plan(Declared(wanted), there)) == [("update", "stream A"), ("create", "stream B")]
