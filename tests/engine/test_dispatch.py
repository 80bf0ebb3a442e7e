"""The dispatch table: which calls get an answer, which get none, and how bodies are read."""

import re
from pathlib import Path

import pytest

from pelton.core.protocol.subjects import collide
from pelton.engine.calls.api_calls import CALLS, Body
from tests.engine.house import House

ROOT = Path(__file__).parents[2]
ARGUMENTS = {"*": "S", ">": "x.y"}


def subject_of(pattern: str) -> str:
    return ".".join(ARGUMENTS.get(token, token) for token in pattern.split("."))


def test_no_subject_is_two_calls() -> None:
    patterns = [call.pattern for call in CALLS]
    for n, one in enumerate(patterns):
        for other in patterns[:n]:
            assert not collide(one, other), f"{one} and {other}"


def test_the_calls_are_those_of_the_protocol() -> None:
    lines = (ROOT / "tests/engine/call_table.tsv").read_text().splitlines()
    table = dict(line.split("\t") for line in lines)
    ours = {call.pattern: call.type for call in CALLS}
    assert {pattern: table.get(pattern) for pattern in ours} == ours
    assert set(table) == set(ours)


@pytest.mark.parametrize("call", CALLS, ids=lambda call: call.pattern)
def test_every_call_answers_with_its_type_even_to_garbage(house: House, call: object) -> None:
    row = next(each for each in CALLS if each is call)
    for body in (b"", b"{}", b"{", b"garbage", b'{"nonsense":1}', b"[1,2]", b"\xff\x00"):
        answer = house.api(subject_of(row.pattern), body)
        if answer is None:
            assert row.pattern == "CONSUMER.RESET.*.*"  # no answer when the consumer does not exist
            continue
        assert answer["type"] == f"io.nats.jetstream.api.v1.{row.type}"
        error = answer.get("error", {"code": 400, "err_code": 10000, "description": "none"})
        assert set(error) == {"code", "err_code", "description"}
        assert 400 <= error["code"] <= 503
        if row.body is Body.EMPTY and body not in (b"", b"{}"):
            assert error["err_code"] == 10038
    assert not house.reports


@pytest.mark.parametrize(
    "call",
    [
        "NONSENSE",
        "STREAM",
        "STREAM.CREATE",
        "STREAM.CREATE.a.b",
        "STREAM.NAMES.x",
        "CONSUMER.INFO.S",
        "CONSUMER.DURABLE.CREATE.S",
        "META.LEADER.STEPDOWN",
        "META.RESCUE",
        "SERVER.REMOVE",
        "SERVER.EVACUATE",
        "ACCOUNT.PURGE.G",
        "ACCOUNT.STREAM.MOVE.G.S",
        "ACCOUNT.STREAM.CANCEL_MOVE.G.S",
        "STREAM.TEMPLATE.NAMES",
    ],
)
def test_other_subjects_get_silence(house: House, call: str) -> None:
    assert house.request(f"$JS.API.{call}") == []


def test_a_subject_that_is_none_has_no_responders(house: House) -> None:
    [(headers, _)] = house.request("$JS.API.CONSUMER.CREATE.S..x")
    assert headers.startswith(b"NATS/1.0 503")


def test_who_asks_for_a_level_gets_it_or_an_error(house: House) -> None:
    levels = {"5": True, "0": True, "-1": True, "": True, "6": False, "x": False, "9" * 5000: False}
    for text, good in levels.items():
        header = f"NATS/1.0\r\nNats-Required-Api-Level: {text}\r\n\r\n".encode()
        answer = house.api("INFO", headers=header)
        assert answer.get("error", {}).get("err_code") == (None if good else 10185)


def test_a_level_of_thousands_of_digits_is_too_high_for_direct_get(house: House) -> None:
    house.stream(subjects=["s"], allow_direct=True)
    header = b"NATS/1.0\r\nNats-Required-Api-Level: " + b"9" * 5000 + b"\r\n\r\n"
    [(headers, _)] = house.request("$JS.API.DIRECT.GET.S.s", b"", header)
    assert headers.startswith(b"NATS/1.0 412")
    assert not house.server.errors


def test_calls_and_errors_are_counted(house: House) -> None:
    house.stream()
    house.error("STREAM.INFO.missing")
    stats = house.ok("INFO")["api"]
    assert stats == {"level": 5, "total": 2, "errors": 1}


def test_a_call_without_a_reply_is_carried_out(house: House) -> None:
    house.send("$JS.API.STREAM.CREATE.S", b'{"name":"S"}')
    assert house.ok("STREAM.NAMES")["streams"] == ["S"]


def test_unknown_fields_are_errors_unless_relaxed(tmp_path: Path) -> None:
    body = {"name": "S", "surprise": 1}
    strict, relaxed = House(tmp_path / "a"), House(tmp_path / "b", strict=False)
    code, text = strict.error("STREAM.CREATE.S", body)
    assert (code, text) == (10025, 'invalid JSON: json: unknown field "surprise"')
    relaxed.ok("STREAM.CREATE.S", body)


def test_a_server_alone_has_no_leader_to_move(house: House) -> None:
    house.stream()
    for call in (
        "STREAM.LEADER.STEPDOWN.S",
        "CONSUMER.LEADER.STEPDOWN.S.c",
        "STREAM.PEER.REMOVE.S",
        "STREAM.PEER.EVACUATE.S",
        "STREAM.CANCEL_MOVE.S",
    ):
        for body in (b"", b"{", {"peer": "x"}):
            assert house.error(call, body)[0] == 10010


def test_the_account_adds_up(house: House) -> None:
    house.stream("F", subjects=["f"], max_bytes=1000)
    house.stream("M", subjects=["m"], storage="memory", max_bytes=500)
    house.consumer(stream="F")
    house.publish("f")
    house.publish("m")
    info = house.ok("INFO")
    assert (info["streams"], info["consumers"]) == (2, 1)
    assert (info["storage"], info["memory"]) == (22 + 1 + 1 + 8, 1 + 1 + 16)
    assert (info["reserved_storage"], info["reserved_memory"]) == (1000, 500)
    assert set(info["limits"].values()) == {-1, False}


def test_patterns_are_made_of_words_and_wildcards() -> None:
    for call in CALLS:
        assert re.fullmatch(r"[A-Z]+(\.[A-Z_]+)*(\.\*)*(\.>)?", call.pattern)
