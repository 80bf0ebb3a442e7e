"""Changes that do not depend on each other are made side by side, and told in the plan's order."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from pelton.api import ConsumerConfig, StreamConfig
from pelton.apply.executing import ApplyError, execute, execute_each
from pelton.apply.inspecting import inspect
from pelton.apply.planning import Change, Plan
from pelton.apply.together import one_by_one
from pelton.cli.configuration.side_by_side import side_by_side

if TYPE_CHECKING:
    from pelton.apply.together import Together
    from pelton.client.sync.jetstream import JetStream

COUNT = 120


def changes(*, bad: int = -1) -> list[Change]:
    """A stream and its consumers; the consumer with the number ``bad`` has a filter that no server takes."""
    made = [Change("create", "S", wanted=StreamConfig(name="S", subjects=["s.>"]))]
    for number in range(COUNT):
        subject = "other" if number == bad else f"s.{number}"
        wanted = ConsumerConfig(
            durable_name=f"c{number:03d}",
            name=f"c{number:03d}",
            ack_policy="explicit",
            filter_subject=subject,
            deliver_subject="" if number != bad else "s.loop",
            deliver_group="",
        )
        made.append(Change("create", "S", f"c{number:03d}", wanted=wanted))
    return made


def consumers(jetstream: JetStream) -> list[str]:
    return sorted(info.name for info in jetstream.consumers("S"))


WAYS = pytest.mark.parametrize("together", [one_by_one, side_by_side])


@WAYS
def test_all_are_made_and_told_in_order(jetstream: JetStream, together: Together) -> None:
    told: list[str] = []
    plan = Plan(changes())
    assert (
        execute(jetstream, plan, done=lambda change: told.append(change.title), together=together)
        == COUNT + 1
    )
    assert told == [change.title for change in plan.pending]
    assert len(consumers(jetstream)) == COUNT
    away = [Change("delete", "S", name) for name in consumers(jetstream)]
    assert execute(jetstream, Plan(away), allow_data_loss=True, together=together) == COUNT
    assert consumers(jetstream) == []


@WAYS
def test_the_first_refusal_ends_it_and_the_number_of_changes_is_told(
    jetstream: JetStream, together: Together
) -> None:
    told: list[Change] = []
    with pytest.raises(
        ApplyError, match=r"cannot create .*c060: .* of 121 changes were made"
    ) as got:
        execute(jetstream, Plan(changes(bad=60)), done=told.append, together=together)
    made = consumers(jetstream)
    assert set(made) == {change.consumer for change in told if change.consumer}
    assert {f"c{number:03d}" for number in range(60)} <= set(made)
    assert f"{len(made) + 1} of 121 changes were made" in str(got.value)


def test_each_goes_on_after_a_refusal(jetstream: JetStream) -> None:
    told: list[Change] = []
    failed: list[str] = []
    execute_each(
        jetstream,
        Plan(changes(bad=60)),
        done=told.append,
        held=lambda change, why: pytest.fail(f"{change.title}: {why}"),
        failed=lambda change, why: failed.append(change.consumer),
        together=side_by_side,
    )
    assert failed == ["c060"]
    assert len(told) == COUNT
    assert len(consumers(jetstream)) == COUNT - 1


def test_a_server_is_asked_side_by_side(jetstream: JetStream) -> None:
    for name in ("A", "B", "C"):
        stream = Change("create", name, wanted=StreamConfig(name=name, subjects=[f"{name}.>"]))
        consumer = ConsumerConfig(durable_name="c", name="c", ack_policy="explicit")
        execute(jetstream, Plan([stream, Change("create", name, "c", wanted=consumer)]))
    found = inspect(jetstream, together=side_by_side)
    assert found == inspect(jetstream)
    assert sorted(found.consumers) == [("A", "c"), ("B", "c"), ("C", "c")]
