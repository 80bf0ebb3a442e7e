"""Consumer configurations drawn from every field's values get the same verdict of our server and of
a nats-server: the same error, or the same configuration with all defaults in, and the same info.

Each is created, looked at, updated, and looked at again, on streams that have messages.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, given, seed, settings
from hypothesis import strategies as st

from tests.compat.configs import CONSUMER, SECOND, drawn
from tests.compat.pair import Judges, both
from tests.compat.seeds import examples, seed_of
from tests.compat.waivers import CONSUMER_WAIVERS, waived
from tests.ways import FULL, length

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.peer

Config = dict[str, Any]
CALLS = settings(
    max_examples=examples(50),
    database=None,
    suppress_health_check=list(HealthCheck),
    report_multiple_bugs=False,
)
STREAMS: dict[str, Config] = {
    "S": {"subjects": ["s.*"]},
    "LIMITED": {
        "subjects": ["l.*"],
        "consumer_limits": {"inactive_threshold": 30 * SECOND, "max_ack_pending": 50},
    },
    "LAST": {"subjects": ["one.*"], "max_msgs_per_subject": 1},
    "QUEUE": {"subjects": ["q.*"], "retention": "workqueue"},
    "INTEREST": {"subjects": ["i.*"], "retention": "interest", "max_consumers": 1},
}
NAMES = ("c", "other")


@pytest.fixture(scope="module")
def judges() -> Iterator[Judges]:
    with both() as pair:
        judges = Judges(pair)
        for name, config in STREAMS.items():
            judges.ask(f"STREAM.CREATE.{name}", {"name": name, **config})
            for n in range(6):
                judges.publish(config["subjects"][0].replace("*", str(n % 3)), b"message %d" % n)
        yield judges


def request(stream: str, config: Config, top: Config) -> Config:
    return {"stream_name": stream, "config": config, **top}


def verdict(
    judges: Judges, first: Config, second: Config | None = None, stream: str = "S", **top: Any
) -> None:
    """Create with the first, update to the second; both answers are the same."""
    if waived(CONSUMER_WAIVERS, first) or waived(CONSUMER_WAIVERS, second or {}):
        return
    call = f"CONSUMER.CREATE.{stream}.c"
    first = {"name": "c", **first}
    try:
        if judges.same(call, request(stream, first, top)) and judges.same(
            f"CONSUMER.INFO.{stream}.c"
        ):
            changed = {"name": "c", **(first if second is None else second)}
            if judges.same(call, request(stream, changed, {})) is not None:
                judges.same(f"CONSUMER.INFO.{stream}.c")
                judges.same(call, request(stream, changed, {"action": "create"}))
    finally:
        given = [*first.values(), *(second or {}).values()]
        for name in NAMES if "other" in given else NAMES[:1]:
            judges.ask(f"CONSUMER.DELETE.{stream}.{name}")


@pytest.mark.parametrize(
    ("number", "pair"),
    [pytest.param(n, pair, id=f"{n}-{pair[0]}") for n, pair in enumerate(CONSUMER)],
)
def test_each_value_alone(judges: Judges, number: int, pair: tuple[str, Any]) -> None:
    """In every kind of consumer; pedantic and updated in one of them, in turns."""
    field, value = pair
    durable = {"durable_name": "c", "ack_policy": "explicit"}
    push = {**durable, "deliver_subject": "to"}
    for turn, base in enumerate(({}, durable, push), number):
        if FULL or turn % 3 < 2:  # the last one begins with the same creation
            verdict(judges, {**base, field: value})
        if FULL or turn % 3 == 0:
            verdict(judges, {**base, field: value}, pedantic=True)
        if FULL or turn % 3 == 1:
            verdict(judges, base, {**base, field: value})
        if FULL or turn % 3 == 2:
            verdict(judges, {**base, field: value}, base)


@pytest.mark.parametrize("stream", STREAMS)
@pytest.mark.parametrize("repeat", range(length(1, 2)))
def test_values_together(judges: Judges, stream: str, repeat: int) -> None:
    @seed(seed_of(repeat))
    @CALLS
    @given(drawn(CONSUMER, 5), drawn(CONSUMER, 3), st.booleans(), st.sampled_from(["", "create"]))
    def judge(config: Config, change: Config, pedantic: bool, action: str) -> None:
        top = {"pedantic": pedantic, "action": action}
        verdict(judges, config, {**config, **change}, stream, **top)

    judge()


@pytest.mark.parametrize(
    "call",
    [
        "CONSUMER.CREATE.S",
        "CONSUMER.CREATE.S.c",
        "CONSUMER.CREATE.S.c.s.1",
        "CONSUMER.CREATE.S.c.s.*",
        "CONSUMER.DURABLE.CREATE.S.c",
        "CONSUMER.CREATE.NOTHING.c",
        "CONSUMER.CREATE.S.other",
    ],
)
def test_names_and_subjects(judges: Judges, call: str) -> None:
    for config in (
        {},
        {"name": "c"},
        {"durable_name": "c"},
        {"name": "c", "durable_name": "c"},
        {"name": "c", "durable_name": "d"},
        {"name": "c", "filter_subject": "s.1"},
        {"name": "c", "filter_subject": "s.*"},
        {"name": "c", "filter_subjects": ["s.1"]},
        {"durable_name": "c", "filter_subject": "s.1"},
    ):
        for action in ("", "create", "update", "x"):
            for stream in ("S", "T", ""):
                judges.same(call, request(stream, config, {"action": action}), unnamed=True)
                for name in NAMES:
                    judges.ask(f"CONSUMER.DELETE.S.{name}")
    judges.forget()
