"""Stream templates of 2020: a stream for each new subject, over restarts and crashes."""

from __future__ import annotations

import json
import random
from typing import Any

import pytest

from pelton.api.calls import AccountLimits
from pelton.core.protocol.permissions import ConnectionPermissions
from tests.engine.house import House

OK = b"+OK"


def said(house: House, subject: str, body: Any = b"") -> bytes:
    """The one answer to a request: TEMPLATE.LIST, TEMPLATE.<t>.CREATE, .INFO, .DELETE."""
    answers = house.request(f"$JS.TEMPLATE.{subject}", body)
    assert not house.server.errors, house.server.errors
    assert len(answers) == 1, answers
    payload: bytes = answers[0][1]
    return payload


def shown(house: House, subject: str) -> Any:
    answer = said(house, subject)
    assert not answer.startswith(b"-ERR"), answer
    return json.loads(answer)


def make(house: House, name: str = "1H", most: int = 3, **config: Any) -> bytes:
    config = {"subjects": ["JS.1H.*"], "storage": "file", **config}
    return said(house, f"{name}.CREATE", {"name": name, "max_streams": most, "config": config})


def streams(house: House) -> dict[str, list[str]]:
    """The streams with their payloads."""
    found = {}
    for name in house.account.streams:
        texts = []
        for seq in range(1, house.account.streams[name].core.log.last_seq + 1):
            answer = house.request(f"$JS.STREAM.{name}.MSG.BYSEQ", b"%d" % seq)[0][1]
            texts.append(json.loads(answer)["data"])
        found[name] = texts
    return found


def test_a_message_makes_its_stream(house: House) -> None:
    assert make(house) == OK
    assert house.request("JS.1H.hello", b"one")[0][1] == OK
    assert house.request("JS.1H.hello", b"two")[0][1] == OK
    assert house.request("JS.1H.other", b"three")[0][1] == OK
    assert {name: len(texts) for name, texts in streams(house).items()} == {
        "JS_1H_hello": 2,
        "JS_1H_other": 1,
    }
    info = shown(house, "1H.INFO")
    assert info["streams"] == ["JS_1H_hello", "JS_1H_other"]
    assert info["config"]["name"] == "1H"
    assert info["config"]["max_streams"] == 3
    assert info["config"]["config"]["subjects"] == ["JS.1H.*"]
    config = json.loads(house.request("$JS.STREAM.JS_1H_hello.INFO")[0][1])["config"]
    assert (config["subjects"], config["template_owner"]) == (["JS.1H.hello"], "1H")
    assert shown(house, "LIST") == ["1H"]


def test_the_limit_of_streams(house: House) -> None:
    assert make(house, most=2) == OK
    for name in "abc":
        house.request(f"JS.1H.{name}", b"x")
    assert sorted(house.account.streams) == ["JS_1H_a", "JS_1H_b"]
    assert sum("creates none" in line for line in house.reports) == 1
    assert house.request("$JS.STREAM.JS_1H_a.DELETE")[0][1] == OK
    house.request("JS.1H.c", b"x")
    assert sorted(house.account.streams) == ["JS_1H_b", "JS_1H_c"]


@pytest.mark.parametrize("crash", [False, True])
def test_templates_outlive_the_server(house: House, crash: bool) -> None:
    assert make(house) == OK
    assert make(house, "gone", subjects=["gone.*"]) == OK
    house.request("JS.1H.a", b"one")
    house.request("gone.a", b"one")
    assert said(house, "gone.DELETE") == OK
    house = house.crash() if crash else house.restart()
    assert shown(house, "LIST") == ["1H"]
    assert shown(house, "1H.INFO")["streams"] == ["JS_1H_a"]
    house.request("JS.1H.a", b"two")
    house.request("JS.1H.b", b"three")
    house.request("gone.b", b"four")
    assert {name: len(texts) for name, texts in streams(house).items()} == {
        "JS_1H_a": 2,
        "JS_1H_b": 1,
    }


def test_a_template_goes_with_its_streams(house: House) -> None:
    assert make(house) == OK
    house.request("JS.1H.a", b"x")
    assert said(house, "1H.DELETE") == OK
    assert not house.account.streams
    assert shown(house, "LIST") is None
    house.request("JS.1H.a", b"x")
    assert not house.account.streams
    assert said(house, "1H.DELETE") == b"-ERR 'template not found'"
    assert make(house) == OK


@pytest.mark.parametrize(
    ("name", "body", "told"),
    [
        ("T", {"name": "U"}, "does not match request"),
        ("T", {"name": "T", "config": {"name": "x", "subjects": ["a"]}}, "should be empty"),
        ("T", {"name": "T", "config": {}}, "subjects"),
        ("T", {"name": "T", "max_streams": -1, "config": {"subjects": ["a"]}}, "bad request"),
        ("T", {"name": "T", "config": {"subjects": ["a..b"]}}, "subject"),
        ("T", {"name": "T", "config": {"subjects": ["$JS.API.>"]}}, "subjects"),
        ("T", {"name": "T", "config": {"subjects": ["a"], "retention": "x"}}, "bad request"),
        ("T", b"{", "bad request"),
        ("1H", {"name": "1H", "config": {"subjects": ["a"]}}, "already exists"),
    ],
)
def test_refusals(house: House, name: str, body: Any, told: str) -> None:
    assert make(house) == OK
    answer = said(house, f"{name}.CREATE", body)
    assert answer.startswith(b"-ERR '")
    assert told in answer.decode()
    assert shown(house, "LIST") == ["1H"]
    assert said(house, "1H.INFO", b"x") == b"-ERR 'bad request'"
    assert said(house, "X.INFO") == b"-ERR 'template not found'"


def test_a_name_that_another_stream_has(house: House) -> None:
    """Two subjects of one name: the first one has the stream, as in 2020."""
    assert make(house, subjects=["a.>"], most=9) == OK
    assert house.request("a.b.c", b"x")[0][1] == OK
    house.request("a.b_c", b"y")
    assert streams(house).keys() == {"a_b_c"}


def test_many_subjects(house: House, seed: int) -> None:
    """Against a model: each subject has its stream, up to the limit, with its messages in order."""
    draw = random.Random(seed)
    assert make(house, subjects=["n.>"], most=6) == OK
    model: dict[str, int] = {}
    for number in range(120):
        subject = f"n.{draw.randrange(9)}"
        name = subject.replace(".", "_")
        if draw.random() < 0.05 and model:
            gone = draw.choice(sorted(model))
            assert house.request(f"$JS.STREAM.{gone}.DELETE")[0][1] == OK
            del model[gone]
        elif draw.random() < 0.05:
            house = draw.choice([house.crash, house.restart])()
        else:
            answers = house.request(subject, b"%d" % number)
            taken = name in model or len(model) < 6
            assert [each[1] for each in answers if each[1]] == ([OK] if taken else [])
            if taken:
                model[name] = model.get(name, 0) + 1
    assert {n: len(texts) for n, texts in streams(house).items()} == model


def test_what_denies_streams_denies_templates(house: House) -> None:
    assert make(house) == OK
    for deny, subject in (
        ("$JS.API.STREAM.CREATE.>", "T.CREATE"),
        ("$JS.API.STREAM.DELETE.*", "1H.DELETE"),
        ("$JS.API.STREAM.INFO.*", "1H.INFO"),
        ("$JS.API.STREAM.NAMES", "LIST"),
    ):
        house.client.connection.permissions = ConnectionPermissions(publish_deny=[deny])
        body = {"name": "T", "config": {"subjects": ["t"]}} if "CREATE" in subject else b""
        assert said(house, subject, body) == b"-ERR 'permissions violation'"
    house.client.connection.permissions = None
    assert shown(house, "LIST") == ["1H"]


def test_a_message_without_room_costs_little_and_is_reported_once(house: House) -> None:
    """The account's limit of streams: no create is tried again at once, whatever the subject is."""
    house.account.limits = {"": AccountLimits(max_streams=2)}
    assert make(house, most=100) == OK
    house.stream("other", subjects=["other"])
    house.request("JS.1H.a", b"x")
    tried: list[str] = []
    templates = house.account.templates
    assert templates is not None
    carry_out = templates._make
    templates._make = lambda call, body: tried.append(call) or carry_out(call, body)  # type: ignore[func-returns-value] # a count
    for number in range(300):
        house.send(f"JS.1H.b{number}", b"x")
    assert len(tried) == 1
    assert sum("cannot create stream" in line for line in house.reports) == 1
    assert house.ok("STREAM.DELETE.other")["success"]
    house.send("JS.1H.b", b"x")
    assert sorted(house.account.streams) == ["JS_1H_a", "JS_1H_b"]


def test_failures_of_single_subjects_are_reported_once_in_a_second(house: House) -> None:
    assert make(house, most=100, subjects=["JS.>"]) == OK
    house.stream("other", subjects=["JS.*.taken"])
    for number in range(50):
        house.send(f"JS.{number}.taken", b"x")
    reported = [line for line in house.reports if "cannot create stream" in line]
    assert len(reported) == 1
    house.pass_time(2_000_000_000)
    house.send("JS.51.taken", b"x")
    reported = [line for line in house.reports if "cannot create stream" in line]
    assert len(reported) == 2
    assert "49 more" in reported[1]
    house.send("JS.free", b"x")
    assert "JS_free" in house.account.streams


def test_a_full_template_does_not_look_at_the_streams_again(house: House) -> None:
    assert make(house, most=1) == OK
    for number in range(100):
        house.stream(f"O{number}", subjects=[f"o.{number}"], storage="memory")
    house.send("JS.1H.a", b"x")
    house.send("JS.1H.b", b"x")
    assert house.account.templates is not None
    found = house.account.templates._found
    for number in range(100):
        house.send(f"JS.1H.c{number}", b"x")
    assert house.account.templates._found is found
    config = house.ok("STREAM.INFO.JS_1H_a")["config"]
    config["metadata"].pop("_js.template")
    house.ok("STREAM.UPDATE.JS_1H_a", config)  # the template lets the stream go
    house.send("JS.1H.b", b"x")
    assert "JS_1H_b" in house.account.streams
