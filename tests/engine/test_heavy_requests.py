"""Requests as large as a payload may be: the work for one is bounded, and a request beyond the
limits gets an error.

Work is counted in calls of Python and C functions, which do not depend on the speed of the machine.
Comparisons of subjects count their own steps (tests/core/protocol/test_overlaps).
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from bench.heavy_requests import Heavy, requests
from pelton.engine.base.settings import MAX_ITEMS, MAX_SUBJECT_TOKENS, MAX_SUBJECTS, MAX_TOKENS
from tests.counting import calls_of
from tests.ways import SEED, length

from .house import House


@pytest.fixture
def house(tmp_path: Path) -> House:
    return House(tmp_path)


def stream(subjects: list[str], **fields: Any) -> dict[str, Any]:
    return {"name": "H", "storage": "memory", "subjects": subjects, **fields}


def consumer(filters: list[str]) -> dict[str, Any]:
    return {"stream_name": "S", "config": {"name": "n", "filter_subjects": filters}}


def literals(number: int) -> list[str]:
    return [f"s.{place}" for place in range(number)]


def wildcards(number: int) -> list[str]:
    return [f"s.{place}.*.>" for place in range(number)]


@pytest.mark.parametrize("make", [literals, wildcards])
def test_the_work_for_a_list_of_subjects_grows_with_the_list(
    house: House, make: Callable[[int], list[str]]
) -> None:
    counts = []
    for number in (500, 2000):
        wanted = make(number)
        works: list[tuple[str, dict[str, Any]]] = [
            ("STREAM.CREATE.H", stream(wanted)),
            ("STREAM.UPDATE.H", stream([*wanted[1:], *(f"t.{each}" for each in wanted)])),
            ("STREAM.DELETE.H", {}),
        ]
        counts.append([calls_of(lambda work=work: house.ok(*work)) for work in works])
        house.stream("S", subjects=["s.>"], storage="memory")
        made = consumer(wanted)
        counts[-1].append(calls_of(lambda made=made: house.ok("CONSUMER.CREATE.S.n", made)))
        house.ok("STREAM.DELETE.S")
    for small, large in zip(*counts, strict=True):
        assert large <= 4.5 * small + 100, counts


def test_a_create_does_not_look_at_the_subjects_of_other_streams(house: House) -> None:
    counts = []
    for number in (10, 200):
        for place in range(number):
            house.stream(f"O{place}", subjects=[f"o.{place}", f"p.{place}.>"], storage="memory")
        counts.append(calls_of(lambda: house.ok("STREAM.CREATE.H", stream(["h"]))))
        assert house.error("STREAM.CREATE.I", {"name": "I", "subjects": ["p.*.x"]})[0] == 10065
        asked = house.ok("STREAM.NAMES", {"subject": "p.7.x"})
        assert asked["streams"] == ["O7"]
        assert house.ok("STREAM.LIST", {"subject": "*.8"})["total"] == 1
        for place in range(number):
            house.ok(f"STREAM.DELETE.O{place}")
        assert not house.ok("STREAM.NAMES", {"subject": "o.>"})["streams"]
        house.ok("STREAM.DELETE.H")
    # the sums over all streams for the limits remain
    assert counts[1] - counts[0] <= 8 * 190


def test_what_a_stream_listens_to_follows_its_updates(house: House) -> None:
    house.stream("A", subjects=["a", "b.*"], storage="memory")
    house.ok("STREAM.UPDATE.A", {"name": "A", "subjects": ["b.*", "c"], "storage": "memory"})
    house.stream("B", subjects=["a"], storage="memory")
    for taken in ("c", "b.x", ">"):
        config = {"name": "C", "subjects": [taken], "no_ack": True}
        assert house.error("STREAM.CREATE.C", config)[0] == 10065
    assert house.ok("STREAM.NAMES", {"subject": "*"})["streams"] == ["A", "B"]
    again = house.restart()
    assert again.ok("STREAM.NAMES", {"subject": "c"})["total"] == 0  # memory streams do not survive
    again.stream("D", subjects=["c.*"])
    assert again.restart().ok("STREAM.NAMES", {"subject": "*.x"})["streams"] == ["D"]


@pytest.mark.parametrize(
    ("fields", "what"),
    [
        ({"subjects": literals(MAX_SUBJECTS + 1)}, f"too many subjects, maximum allowed is {MAX_SUBJECTS}"),
        (
            {"subjects": [".".join("a" * (MAX_SUBJECT_TOKENS + 1))]},
            f"subject has too many tokens, maximum allowed is {MAX_SUBJECT_TOKENS}",
        ),
        (
            {"subjects": [f"a.{n}." + ".".join("b" * 99) for n in range(MAX_TOKENS // 100)]},
            f"subjects have too many tokens, maximum allowed is {MAX_TOKENS}",
        ),
        (
            {"sources": [{"name": f"s{n}"} for n in range(MAX_ITEMS + 1)]},
            f"too many sources, maximum allowed is {MAX_ITEMS}",
        ),
        (
            {"sources": [{"name": "s", "subject_transforms": [{"src": f"a{n}"} for n in range(MAX_ITEMS + 1)]}]},
            f"too many subject transforms, maximum allowed is {MAX_ITEMS}",
        ),
        (
            {"mirror": {"name": "s", "filter_subject": ".".join("a" * (MAX_SUBJECT_TOKENS + 1))}},
            f"source filter has too many tokens, maximum allowed is {MAX_SUBJECT_TOKENS}",
        ),
        (
            {"placement": {"tags": ["t"] * (MAX_ITEMS + 1)}},
            f"too many placement tags, maximum allowed is {MAX_ITEMS}",
        ),
        (
            {"subjects": [f"z.*.r{n}" for n in range(1500)] + [f"z.x{n}.q" for n in range(1500)]},
            "subjects with wildcards cross too often to be compared",
        ),
    ],
)  # fmt: skip
def test_more_than_a_stream_may_have_is_refused(
    house: House, fields: dict[str, Any], what: str
) -> None:
    body = {"name": "H", "storage": "memory", **fields}
    assert house.error("STREAM.CREATE.H", body) == (10052, what)
    house.stream("H", subjects=["h"], storage="memory")
    assert house.error("STREAM.UPDATE.H", body) == (10052, what)


@pytest.mark.parametrize(
    ("fields", "what"),
    [
        (
            {"filter_subjects": literals(MAX_SUBJECTS + 1)},
            f"too many filter subjects, maximum allowed is {MAX_SUBJECTS}",
        ),
        (
            {"filter_subject": ".".join("a" * 50_000)},
            f"filter subject has too many tokens, maximum allowed is {MAX_SUBJECT_TOKENS}",
        ),
        ({"backoff": [1] * (MAX_ITEMS + 1)}, f"too many backoff times, maximum allowed is {MAX_ITEMS}"),
        (
            {"priority_groups": ["g"] * (MAX_ITEMS + 1)},
            f"too many priority groups, maximum allowed is {MAX_ITEMS}",
        ),
    ],
)  # fmt: skip
def test_more_than_a_consumer_may_have_is_refused(
    house: House, fields: dict[str, Any], what: str
) -> None:
    house.stream("S", subjects=["s.>"], storage="memory")
    body = {"stream_name": "S", "config": {"name": "n", **fields}}
    assert house.error("CONSUMER.CREATE.S.n", body) == (10052, what)


def test_as_much_as_is_allowed_is_taken(house: House) -> None:
    house.stream("H", subjects=literals(MAX_SUBJECTS), storage="memory")
    assert house.publish(f"s.{MAX_SUBJECTS - 1}")["seq"] == 1
    body = {"stream_name": "H", "config": {"name": "n", "filter_subjects": literals(MAX_SUBJECTS)}}
    assert house.ok("CONSUMER.CREATE.H.n", body)["num_pending"] == 1


def test_origins_that_name_each_other_many_times_are_refused(house: House) -> None:
    house.stream("O0", subjects=["o"], storage="memory")
    for place in range(1, 30):
        sources = [{"name": f"O{place - 1}", "filter_subject": f"f{n}"} for n in range(4)]
        answer = house.api(
            f"STREAM.CREATE.O{place}",
            {"name": f"O{place}", "storage": "memory", "sources": sources},
        )
        if "error" in answer:
            break
    assert answer["error"]["description"] == (
        "the sources of the origins form too many paths to be checked for a cycle"
    )


DIGITS = "9" * 100_000
TOO_MANY_OBJECTS = (10025, "invalid JSON: too many objects, maximum allowed is 5000")
LONG_SAMPLE = f'strconv.Atoi: parsing "{DIGITS}": value out of range'
LONG_WILDCARD = f"{{{{wildcard({DIGITS})}}}}"
WRONG_ARGUMENT = "function argument is invalid or in the wrong format"


@pytest.mark.parametrize(
    ("call", "body", "error"),
    [
        (
            "CONSUMER.CREATE.S.n",
            {"stream_name": "S", "config": {"sample_freq": DIGITS}},
            (10095, f"failed to parse consumer sampling configuration: {LONG_SAMPLE}"),
        ),
        (
            "STREAM.CREATE.H",
            {"name": "H", "subject_transform": {"src": "*", "dest": LONG_WILDCARD}},
            (
                10156,
                "stream transform: invalid mapping destination: "
                f"{WRONG_ARGUMENT} in {LONG_WILDCARD}",
            ),
        ),
        (
            "STREAM.CREATE.H",
            b'{"name":"H","subjects":' + b"[" * 50_000 + b"]" * 50_000 + b"}",
            (10025, "invalid JSON: exceeded max depth"),
        ),
        (
            "STREAM.CREATE.H",
            b"{} " * 501,
            (10025, "invalid JSON: too many documents, maximum allowed is 500"),
        ),
        ("STREAM.CREATE.H", {"name": "H", "sources": [{}] * 6000}, TOO_MANY_OBJECTS),
        ("STREAM.CREATE.H", b'{"sources":[' + b"[]," * 150_000 + b"[]]}", TOO_MANY_OBJECTS),
    ],
)
def test_a_request_out_of_all_measure_gets_a_documented_error(
    house: House, call: str, body: Any, error: tuple[int, str]
) -> None:
    house.stream("S", subjects=["s.>"], storage="memory")
    assert house.error(call, body) == error


@pytest.mark.parametrize(
    "number", [f"{DIGITS}", f"-{DIGITS}", f"1.{DIGITS}", f"1e{DIGITS}", "1e999999999"]
)
def test_a_number_of_many_digits_is_named_in_the_error(house: House, number: str) -> None:
    body = b'{"name":"H","max_msgs":' + number.encode() + b"}"
    what = f"invalid JSON: json: cannot unmarshal number {number} into Go struct field "
    code, said = house.error("STREAM.CREATE.H", body)
    assert code == 10025
    assert said in (
        f"{what}StreamConfigRequest.max_msgs of type int64",
        f"{what}JSApiStreamConfigRequest.max_msgs of type int64",
    )


def test_publishes_with_numbers_of_many_digits_are_refused(house: House) -> None:
    house.stream(
        "T", subjects=["t"], storage="memory", allow_msg_ttl=True, allow_msg_schedules=True
    )
    house.stream("C", subjects=["c"], storage="memory", allow_msg_counter=True)
    digits = b"9" * 60_000
    for subject, headers, code in (
        ("t", b"Nats-TTL: " + digits, 10165),
        ("t", b"Nats-TTL: " + digits + b"s", 10165),
        ("t", b"Nats-TTL: 1." + digits + b"s", 10165),
        ("t", b"Nats-Schedule: @every " + digits + b"s\r\nNats-Schedule-Target: t", 10189),
        ("t", b"Nats-Schedule: " + digits + b" * * * * *\r\nNats-Schedule-Target: t", 10189),
        ("c", b"Nats-Incr: " + digits, 10171),
    ):
        said = house.publish(subject, b"", b"NATS/1.0\r\n" + headers + b"\r\n\r\n")
        assert said["error"]["err_code"] == code, (headers[:30], said)
    assert not house.reports


@pytest.mark.parametrize("subjects", [300, 9000])
def test_many_filters_select_what_few_would(house: House, subjects: int) -> None:
    """Logs with few and with many subjects: consumers keep the wanted messages in two ways."""
    house.stream("S", subjects=["s.>"], storage="memory", allow_direct=True)
    for place in range(subjects):
        house.send(f"s.{place}.{place % 7}")
    filters = [f"s.{place}.*" for place in range(0, 200, 2)] + [f"s.{n}.{n % 7}" for n in (1, 201)]
    config = {"name": "c", "filter_subjects": filters, "ack_policy": "none"}
    made = house.ok("CONSUMER.CREATE.S.c", {"stream_name": "S", "config": config})
    assert made["num_pending"] == 102
    got = [event[1] for event in house.pull(200)]
    assert len(got) == 102
    house.send("s.4.new")
    house.send("s.5.new")
    info = house.ok("CONSUMER.INFO.S.c")
    assert info["num_pending"] == 1
    config = {"name": "d", "filter_subjects": filters, "deliver_policy": "last"}
    made = house.ok("CONSUMER.CREATE.S.d", {"stream_name": "S", "config": config})
    assert (made["num_pending"], made["delivered"]["stream_seq"]) == (1, subjects)


def test_a_direct_get_of_more_patterns_than_are_looked_up_is_refused(house: House) -> None:
    house.stream("S", subjects=["s.>"], storage="memory", allow_direct=True)
    house.send("s.1")
    answers = house.request("$JS.API.DIRECT.GET.S", {"multi_last": literals(MAX_SUBJECTS)})
    assert not answers[0][0].startswith(b"NATS/1.0 413")
    refused = house.request("$JS.API.DIRECT.GET.S", {"multi_last": literals(MAX_SUBJECTS + 1)})
    assert refused[0][0].startswith(b"NATS/1.0 413")


SIZE = 20_000
OF = length(3, 1)  # of the requests of each call one in so many: others in each run
CALLS_MOST = 150_000  # a thousand transforms take half of that; quadratic work takes millions


@pytest.fixture(scope="module")
def drawn() -> list[Heavy]:
    """The requests that this run tries."""
    return [heavy for number, heavy in enumerate(requests(SIZE)) if (SEED + number) % OF == 0]


@pytest.mark.parametrize("call", ["STREAM.CREATE", "STREAM.UPDATE", "STREAM.RESTORE", "CONSUMER"])
def test_every_field_blown_up_costs_a_bounded_number_of_calls(
    tmp_path: Path, drawn: list[Heavy], call: str
) -> None:
    """Each request of the benchmark, in a small size: no internal error, and no excessive work."""
    print(f"seed {SEED}")
    costly = []
    house = House(tmp_path / "0")
    for number, heavy in enumerate(drawn):
        if not heavy.call.startswith(call):
            continue
        if "S" not in house.account.streams or house.account.transfers:
            house = House(tmp_path / f"{number}")
        for name in list(house.account.streams):
            house.ok(f"STREAM.DELETE.{name}")
        house.stream("S", subjects=["s.>"], storage="memory")
        house.consumer("c", durable_name="c", ack_policy="explicit")
        calls = calls_of(
            lambda heavy=heavy, house=house: house.request(f"$JS.API.{heavy.call}", heavy.body)
        )
        if calls > CALLS_MOST:
            costly.append((heavy.name, calls))
        assert not house.reports, (heavy.name, house.reports)
        assert not house.server.errors, (heavy.name, house.server.errors)
    assert not costly
