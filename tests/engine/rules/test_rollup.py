"""Rollups: which messages are removed, kept and refused, also after a restart."""

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pelton.core.base.quoting import quoted
from pelton.core.log import queries
from tests.core.streams import block
from tests.engine.house import House
from tests.ways import length

SUBJECTS = ["a", "b", "c.d"]
STEPS = st.lists(
    st.tuples(
        st.sampled_from(["put", "put", "put", "sub", "all", "delete", "restart", "crash"]),
        st.integers(0, 2),
    ),
    max_size=30,
)


def rolled(how: str) -> bytes:
    return block(f"Nats-Rollup: {how}")


def contents(house: House, stream: str = "S") -> list[tuple[int, str]]:
    log = house.engine.accounts["$G"].streams[stream].core.log
    found = []
    seq = 1
    while (message := queries.next_of(log, ">", seq)) is not None:
        found.append((message.seq, message.subject))
        seq = message.seq + 1
    return found


@given(steps=STEPS, storage=st.sampled_from(["file", "memory"]))
@settings(max_examples=length(20, 40), deadline=None)
def test_a_stream_with_rollups_holds_what_a_dict_holds(
    steps: list[tuple[str, int]], storage: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    house = House(tmp_path_factory.mktemp("house"))
    house.stream(subjects=["s.>"], allow_rollup_hdrs=True, storage=storage)
    house.consumer(ack_policy="explicit")
    model: dict[int, str] = {}
    last = 0
    for step, which in steps:
        subject = f"s.{SUBJECTS[which]}"
        if step in ("restart", "crash"):
            if storage == "memory":
                continue
            house = house.restart() if step == "restart" else house.crash()
        elif step == "delete":
            seqs = sorted(model)
            if seqs:
                seq = seqs[which % len(seqs)]
                house.ok("STREAM.MSG.DELETE.S", {"seq": seq, "no_erase": True})
                del model[seq]
        else:
            last += 1
            ack = house.publish(subject, b"x", b"" if step == "put" else rolled(step.title()))
            assert ack == {"stream": "S", "seq": last}
            if step == "all":
                model.clear()
            elif step == "sub":
                model = {seq: kept for seq, kept in model.items() if kept != subject}
            model[last] = subject
        assert contents(house) == sorted(model.items())
        state = house.ok("STREAM.INFO.S")["state"]
        assert state["messages"] == len(model)
        assert state.get("num_subjects", 0) == len(set(model.values()))
        pending = house.ok("CONSUMER.INFO.S.c")["num_pending"]
        assert pending == len(model)


@pytest.mark.parametrize("how", ["sub", "all"])
def test_many_messages_go_at_once(how: str, tmp_path: Path) -> None:
    house = House(tmp_path)
    house.stream(subjects=["s.>"], allow_rollup_hdrs=True)
    house.consumer(ack_policy="explicit")
    core = house.engine.accounts["$G"].streams["S"].core
    payload = bytes(40_000)
    for n in range(1500):  # enough for several segments
        core.publish(f"s.{n % 3}", payload)
    house.server.reactor.settle()
    assert house.publish("s.1", b"last", rolled(how))["seq"] == 1501
    subjects = {"s.0": 500, "s.1": 1, "s.2": 500} if how == "sub" else {"s.1": 1}
    for _ in range(2):
        state = house.ok("STREAM.INFO.S", {"subjects_filter": ">"})["state"]
        assert state["subjects"] == subjects
        assert state["messages"] == sum(subjects.values())
        assert state["last_seq"] == 1501
        assert house.ok("CONSUMER.INFO.S.c")["num_pending"] == sum(subjects.values())
        assert contents(house)[-1] == (1501, "s.1")
        house = house.restart()


REFUSED: list[tuple[dict[str, Any], str, str]] = [
    ({}, "sub", "rollup not permitted"),
    ({}, "nonsense", "rollup not permitted"),
    ({"allow_rollup_hdrs": True}, 'no"ne', 'rollup value invalid: "no\\"ne"'),
]


@pytest.mark.parametrize(("config", "how", "text"), REFUSED)
def test_what_is_refused(config: dict[str, Any], how: str, text: str, tmp_path: Path) -> None:
    house = House(tmp_path)
    house.stream(subjects=["s.>"], **config)
    house.publish("s.a")
    error = house.publish("s.a", b"x", rolled(how))["error"]
    assert error == {"code": 500, "err_code": 10111, "description": text}
    assert contents(house) == [(1, "s.a")]


def test_an_update_allows_it_and_takes_it_back(tmp_path: Path) -> None:
    house = House(tmp_path)
    base = {"name": "S", "subjects": ["s.>"]}
    house.stream(**base)
    house.ok("STREAM.UPDATE.S", {**base, "allow_rollup_hdrs": True})
    assert house.publish("s.a", b"x", rolled("sub"))["seq"] == 1
    house.ok("STREAM.UPDATE.S", base)
    assert house.publish("s.a", b"x", rolled("sub"))["error"]["err_code"] == 10111


def test_a_rollup_passes_a_full_subject(tmp_path: Path) -> None:
    house = House(tmp_path)
    house.stream(
        subjects=["s.>"],
        allow_rollup_hdrs=True,
        discard="new",
        discard_new_per_subject=True,
        max_msgs_per_subject=2,
    )
    for _ in range(2):
        house.publish("s.a")
    assert house.publish("s.a")["error"]["err_code"] == 10077
    assert house.publish("s.a", b"x", rolled("sub"))["seq"] == 3
    assert contents(house) == [(3, "s.a")]


@pytest.mark.parametrize(
    ("raw", "text"),
    [(b"a", '"a"'), (b'"\\', '"\\"\\\\"'), (b"\x01\x7f", '"\\x01\\x7f"'), (b"\xff", '"\\xff"')],
)
def test_a_value_is_quoted(raw: bytes, text: str) -> None:
    assert quoted(raw) == text


def test_wildcards_in_the_subject_of_a_rollup_are_a_pattern(tmp_path: Path) -> None:
    house = House(tmp_path)
    house.stream(subjects=["s.>"], allow_rollup_hdrs=True)
    for subject in ("s.a", "s.b.c", "s.b.d", "s.b"):
        house.publish(subject, b"old")
    house.publish("s.b.*", b"new", headers=rolled("sub"))
    assert contents(house) == [(1, "s.a"), (4, "s.b"), (5, "s.b.*")]
