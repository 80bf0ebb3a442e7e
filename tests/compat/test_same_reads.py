"""Reads, deletes, purges and their answers, beside a nats-server: the same bytes to both, every
message that comes back compared.
"""

import json
from collections.abc import Iterator
from typing import Any

import pytest

from tests.compat.twins import Twins, twins
from tests.peers import ServerProcess, available_servers, running_server
from tests.ways import EVERY_WAY

pytestmark = pytest.mark.peer

HEADERS = "A: 1\nB: two words"


@pytest.fixture(scope="module")
def servers() -> Iterator[tuple[ServerProcess, ServerProcess]]:
    kinds = ("pelton", "nats-server")
    missing = [kind for kind in kinds if kind not in available_servers()]
    if missing:
        pytest.skip(f"not on this machine: {missing}")
    with (
        running_server(kinds[0], "-n", "twin") as ours,
        running_server(kinds[1], "-n", "twin") as theirs,
    ):
        yield ours, theirs


@pytest.fixture
def both(servers: tuple[ServerProcess, ServerProcess]) -> Iterator[Twins]:
    with twins(servers[0].port, servers[1].port) as pair:
        pair.quiet_s = 0.002  # what comes later than that is seen in the next step
        yield pair
        for name in pair.ask("STREAM.NAMES")["streams"] or ():
            pair.ask(f"STREAM.DELETE.{name}")


def fill(both: Twins, storage: str = "file", **config: Any) -> None:
    """S: 12 messages on s.0 to s.2 and t.x.y, headers on every third, 4, 5 and 12 deleted."""
    fields = {"subjects": ["s.*", "t.>"], "allow_direct": True, "storage": storage, **config}
    both.ask("STREAM.CREATE.S", {"name": "S", **fields})
    for n in range(12):
        subject = "t.x.y" if n % 4 == 3 else f"s.{n % 3}"
        both.publish(subject, f"m{n}", HEADERS if n % 3 == 0 else None, reply="answer")
    for seq in (4, 5, 12):
        both.ask("STREAM.MSG.DELETE.S", {"seq": seq})


def direct(both: Twins, body: Any, subject: str = "S", headers: str | None = None) -> None:
    text = body if isinstance(body, str) else json.dumps(body)
    both.publish(f"$JS.API.DIRECT.GET.{subject}", text, headers, reply="answer")


BOTH = pytest.mark.parametrize("storage", ["file", "memory"])
EARLY, LATE = "2001-01-01T00:00:00Z", "2200-01-01T00:00:00Z"

SINGLE: list[Any] = [
    "", "{}", "{", "x", " ", "null", "[]", "{} {}", '{"seq":1} x', '{"SEQ":1}', '{"seq":"1"}',
    '{"seq":-1}', '{"seq":1,"nonsense":1}', '{"start_time":"x"}',
    {"seq": 1}, {"seq": 4}, {"seq": 12}, {"seq": 13}, {"seq": 1, "no_hdr": True},
    {"seq": 2, "no_hdr": True},
    {"last_by_subj": "s.0"}, {"last_by_subj": "s.*"}, {"last_by_subj": ">"},
    {"last_by_subj": "t.>"}, {"last_by_subj": "*.*"}, {"last_by_subj": "none"},
    {"last_by_subj": "a b"}, {"last_by_subj": "s."},
    {"next_by_subj": "s.0"}, {"next_by_subj": "s.1", "seq": 3}, {"next_by_subj": "t.>", "seq": 9},
    {"next_by_subj": ">", "seq": 4}, {"next_by_subj": ">", "seq": 12}, {"next_by_subj": "a b"},
    {"next_by_subj": "*.x.*", "seq": 5}, {"next_by_subj": "s.0", "seq": 99},
    {"start_time": EARLY}, {"start_time": LATE},
    {"start_time": EARLY, "next_by_subj": "s.1"}, {"start_time": LATE, "next_by_subj": "s.1"},
    {"seq": 1, "last_by_subj": "s.0"}, {"seq": 1, "start_time": EARLY},
    {"start_time": EARLY, "last_by_subj": "s.0"}, {"last_by_subj": "s.0", "next_by_subj": "s.0"},
    {"last_by_subj": "s.0", "batch": 1}, {"last_by_subj": "s.0", "multi_last": ["s.0"]},
    {"next_by_subj": "s.0", "multi_last": ["s.0"]}, {"up_to_seq": 3},
    {"seq": 1, "up_to_seq": 3, "up_to_time": EARLY}, {"seq": 1, "max_bytes": 1},
    {"seq": 1, "up_to_seq": 3}, {"multi_last": []}, {"last_by_subj": "s.0", "max_bytes": 5},
]  # fmt: skip

BATCHES: list[Any] = [
    {"batch": 3}, {"seq": 1, "batch": 1}, {"seq": 1, "batch": 3}, {"seq": 3, "batch": 3},
    {"seq": 1, "batch": 100}, {"seq": 11, "batch": 2}, {"seq": 12, "batch": 2},
    {"seq": 13, "batch": 2}, {"seq": 1, "batch": -1}, {"last_by_subj": "s.0", "batch": -1},
    {"next_by_subj": "s.0", "batch": -1}, {"seq": 4, "batch": 1}, {"seq": 12, "batch": 1},
    {"next_by_subj": "s.*", "batch": 2}, {"next_by_subj": "s.0", "batch": 100},
    {"next_by_subj": "t.>", "seq": 5, "batch": 100}, {"next_by_subj": "none", "batch": 2},
    {"next_by_subj": "a b", "batch": 2}, {"next_by_subj": ">", "seq": 3, "batch": 4},
    {"next_by_subj": "s.1", "seq": 3, "batch": 1}, {"next_by_subj": "s.0", "seq": 99, "batch": 1},
    {"start_time": EARLY, "batch": 3}, {"start_time": LATE, "batch": 3},
    {"start_time": EARLY, "next_by_subj": "s.2", "batch": 3},
    {"seq": 1, "batch": 3, "no_hdr": True}, {"seq": 1, "batch": 100, "max_bytes": 1},
    {"seq": 1, "batch": 100, "max_bytes": 40}, {"seq": 1, "batch": 100, "max_bytes": 46},
    {"seq": 1, "batch": 100, "max_bytes": -1}, {"seq": 1, "batch": 5, "up_to_seq": 2},
]  # fmt: skip

EACH: list[Any] = [
    {"multi_last": ["s.0"]}, {"multi_last": ["s.*"]}, {"multi_last": [">"]},
    {"multi_last": ["s.*", "s.0", "t.>"]}, {"multi_last": ["s.*", ">"]},
    {"multi_last": ["none"]}, {"multi_last": ["none", "s.1"]}, {"multi_last": ["a b", "s.1"]},
    {"multi_last": [""]}, {"multi_last": ["", "s.1"]},
    {"multi_last": ["s.*"], "up_to_seq": 1}, {"multi_last": ["s.*"], "up_to_seq": 5},
    {"multi_last": ["s.*", "t.>"], "up_to_seq": 8}, {"multi_last": [">"], "up_to_seq": 10},
    {"multi_last": ["s.*"], "up_to_seq": 99}, {"multi_last": ["t.>"], "up_to_seq": 4},
    {"multi_last": ["s.*"], "up_to_time": EARLY}, {"multi_last": ["s.*"], "up_to_time": LATE},
    {"multi_last": ["s.*"], "batch": 1}, {"multi_last": ["s.*"], "batch": 2},
    {"multi_last": [">"], "batch": 3}, {"multi_last": [">"], "batch": 100},
    {"multi_last": [">"], "batch": -1}, {"multi_last": [">"], "max_bytes": 1},
    {"multi_last": [">"], "max_bytes": 30}, {"multi_last": [">"], "seq": 9},
    {"multi_last": [">"], "seq": 9, "up_to_seq": 11}, {"multi_last": [">"], "seq": 99},
    {"multi_last": [">"], "seq": 10, "batch": 1}, {"multi_last": [">"], "no_hdr": True},
    {"multi_last": ["s.*"], "start_time": EARLY}, {"multi_last": ["*.x.>", "*.0"]},
]  # fmt: skip


@BOTH
@pytest.mark.parametrize("requests", [SINGLE, BATCHES, EACH], ids=["single", "batch", "each"])
def test_direct_get(both: Twins, storage: str, requests: list[Any]) -> None:
    fill(both, storage)
    # all at once: they are answered in order
    texts = [body if isinstance(body, str) else json.dumps(body) for body in requests]
    lines = [f"PUB $JS.API.DIRECT.GET.S answer {len(t)}\r\n{t}\r\n" for t in texts]
    for at in range(0, len(lines), 10):
        both.say("".join(lines[at : at + 10]))


@BOTH
def test_direct_get_by_subject(both: Twins, storage: str) -> None:
    fill(both, storage)
    for subject in ("S.s.0", "S.t.x.y", "S.s.*", "S.>", "S.none", "S.t.>", "missing.s.0"):
        direct(both, "", subject)
    for body in (
        {"no_hdr": True}, {"seq": 1}, {"batch": 2}, {"batch": -1}, {"max_bytes": 3}, "{", " ",
        {"up_to_seq": 1}, {"multi_last": ["s.0"]}, {"last_by_subj": "s.0"}, "null", {},
        {"start_time": EARLY}, {"up_to_time": EARLY}, {"next_by_subj": "s.0"},
    ):  # fmt: skip
        direct(both, body, "S.s.0")
    direct(both, {"seq": 1}, "S", "Nats-Required-Api-Level: 9")
    direct(both, "", "S.s.0", "Nats-Required-Api-Level: x")
    direct(both, {"seq": 1}, "S", "Nats-Required-Api-Level: 1")
    direct(both, {"seq": 1}, "missing")
    both.publish("$JS.API.DIRECT.GET", "{}", reply="answer")
    both.ask("STREAM.UPDATE.S", {"name": "S", "subjects": ["s.*", "t.>"], "storage": storage})
    direct(both, {"seq": 1})


@BOTH
def test_direct_get_of_an_empty_stream(both: Twins, storage: str) -> None:
    both.ask("STREAM.CREATE.S", {"name": "S", "allow_direct": True, "storage": storage})
    requests = (
        {"seq": 1}, {"last_by_subj": "S"}, {"last_by_subj": ">"}, {"next_by_subj": "S"},
        {"start_time": EARLY}, {"seq": 1, "batch": 2}, {"multi_last": ["S"]}, {"multi_last": [">"]},
        {"multi_last": ["S"], "up_to_time": LATE}, {"multi_last": ["S"], "up_to_seq": 3},
        {"start_time": EARLY, "batch": 1}, {"next_by_subj": "S", "batch": -1},
    )  # fmt: skip
    for body in requests:
        direct(both, body)
    for n in range(3):
        both.publish("S", f"m{n}", reply="answer")
    both.ask("STREAM.PURGE.S")
    for body in requests:
        direct(both, body)


def test_too_many_subjects(both: Twins) -> None:
    both.ask("STREAM.CREATE.S", {"name": "S", "subjects": ["s.>"], "allow_direct": True})
    lines = "".join(f"PUB s.{n % 2}.{n} answer 1\r\nx\r\n" for n in range(1030))
    both.say(lines, quiet_s=0.3)
    for patterns in (["s.0.*"], ["s.>"], ["s.0.*", "s.1.*"], [">"]):
        direct(both, {"multi_last": patterns, "batch": 1})
        direct(both, {"multi_last": patterns, "up_to_seq": 3})
        direct(both, {"multi_last": patterns, "up_to_seq": 1026, "batch": 2})


@BOTH
def test_message_get(both: Twins, storage: str) -> None:
    fill(both, storage)
    for body in [*SINGLE, *BATCHES, *EACH]:
        if body not in ("{} {}", '{"seq":1} x', "x", "[]"):  # words of the JSON reader
            both.ask("STREAM.MSG.GET.S", body)


@BOTH
def test_message_delete(both: Twins, storage: str) -> None:
    fill(both, storage)
    both.ask("STREAM.CREATE.E", {"name": "E", "subjects": ["e"], "storage": storage})
    for call in ("STREAM.MSG.DELETE.S", "STREAM.MSG.DELETE.E", "STREAM.MSG.DELETE.missing"):
        for body in (
            {"seq": 1}, {"seq": 1}, {"seq": 2, "no_erase": True}, {"seq": 2, "no_erase": True},
            {"seq": 0}, {"seq": 0, "no_erase": True}, {"seq": 7}, {"seq": 5}, {"seq": 12},
            {"seq": 13}, {"seq": 99, "no_erase": True}, "", "{}", {"seq": 8},
        ):  # fmt: skip
            both.ask(call, body)
        both.ask("STREAM.INFO.S", {"deleted_details": True})
    both.ask("STREAM.PURGE.S")
    for seq in (0, 1, 11, 12, 13):
        both.ask("STREAM.MSG.DELETE.S", {"seq": seq})
    both.ask("INFO")


@pytest.mark.parametrize(
    ("storage", "first"),
    [
        ("file", False),
        ("memory", True),
        pytest.param("file", True, marks=EVERY_WAY),
        pytest.param("memory", False, marks=EVERY_WAY),
    ],
)
def test_purge(both: Twins, storage: str, first: bool) -> None:
    for body in (
        {"seq": 6}, {"seq": 1}, {"seq": 0}, {"seq": 12}, {"seq": 13}, {"seq": 20}, {"keep": 3},
        {"keep": 9}, {"keep": 99}, {"filter": "s.0"}, {"filter": "s.*", "keep": 1},
        {"filter": "s.*", "seq": 7}, {"filter": "none"}, {"filter": ">"}, {"filter": ">", "seq": 6},
        {"filter": ">", "seq": 20}, {"filter": "*.*", "seq": 20},
        {"filter": ">", "keep": 2}, {"filter": "a b"}, {"seq": 3, "keep": 1}, {"filter": "t.x.*"},
        {"filter": "s.0", "seq": 1}, {"filter": "s.0", "seq": 99}, {"filter": "s.0", "keep": 99},
        {"seq": 1, "keep": 1}, "garbage", "[]", "{}", {"filter": "s.0", "seq": 2, "keep": 1},
    ):  # fmt: skip
        fill(both, storage, **({"first_seq": 1000} if first else {}))
        both.ask("STREAM.PURGE.S", body)
        both.ask("STREAM.INFO.S", {"deleted_details": True, "subjects_filter": ">"})
        both.publish("s.0", "after", reply="answer")
        both.ask("STREAM.PURGE.S")
        both.ask("STREAM.INFO.S", {"deleted_details": True, "subjects_filter": ">"})
        both.ask("STREAM.DELETE.S")


def test_what_is_forbidden(both: Twins) -> None:
    fill(both, deny_delete=True, deny_purge=True)
    both.ask("STREAM.MSG.DELETE.S", {"seq": 1})
    both.ask("STREAM.PURGE.S")
    both.ask("STREAM.PURGE.S", {"seq": 1, "keep": 1})
    sealed = {"subjects": ["s.*", "t.>"], "allow_direct": True, "sealed": True}
    both.ask("STREAM.UPDATE.S", {"name": "S", **sealed, "deny_delete": True, "deny_purge": True})
    both.ask("STREAM.MSG.DELETE.S", {"seq": 1})
    both.ask("STREAM.PURGE.S")
    direct(both, {"seq": 1})


def test_info_of_subjects(both: Twins) -> None:
    fill(both)
    for wanted in ("s.*", "s.0", "none", ">", "a b", "", "t.>", "*.x.y"):
        for offset in (0, 1, 3, 9, -1):
            both.ask("STREAM.INFO.S", {"subjects_filter": wanted, "offset": offset})
    both.ask("STREAM.INFO.S", {"offset": 5})


def test_lists_and_names_in_pages(both: Twins) -> None:
    for n in range(9):
        fields = {"name": f"N{n}", "subjects": [f"n.{n}.>", f"m.{n}"]}
        both.ask(f"STREAM.CREATE.N{n}", fields)
    for subject in ("", "n.3.x", "n.*.x", "m.*", "*", ">", "n.>", "none", "a b", "n.3"):
        for offset in (0, 4, 9, 99, -1):
            both.ask("STREAM.NAMES", {"subject": subject, "offset": offset})
            both.ask("STREAM.LIST", {"subject": subject, "offset": offset})
    for n in (3, 1, 2):
        config = {"name": f"c{n}", "durable_name": f"c{n}"}
        both.ask(f"CONSUMER.CREATE.N1.c{n}", {"stream_name": "N1", "config": config})
    for offset in (0, 1, 3, 99, -1):
        both.ask("CONSUMER.NAMES.N1", {"offset": offset})
        both.ask("CONSUMER.LIST.N1", {"offset": offset})


def test_calls_are_told(both: Twins) -> None:
    both.say("SUB $JS.EVENT.ADVISORY.API told\r\n")
    fill(both)
    for call, body in (
        ("INFO", ""), ("STREAM.INFO.S", " x"), ("STREAM.INFO.missing", ""),
        ("STREAM.MSG.GET.S", {"seq": 1}), ("STREAM.MSG.GET.S", {"seq": 99}),
        ("STREAM.MSG.DELETE.S", {"seq": 99}), ("STREAM.MSG.DELETE.S", ""), ("NONSENSE", ""),
        ("STREAM.PURGE.S", '{"<&>\u2028é":1}'), ("CONSUMER.NAMES.S", ""), ("STREAM.NAMES", "{"),
        ("META.LEADER.STEPDOWN", ""), ("STREAM.LEADER.STEPDOWN.S", "{"),
        ("STREAM.PEER.REMOVE.S", "x"), ("STREAM.PEER.EVACUATE.S", ""), ("STREAM.CANCEL_MOVE.S", ""),
        ("CONSUMER.CREATE.S.c", {"stream_name": "S", "config": {"name": "c"}}),
        ("CONSUMER.INFO.S.c", "x"), ("CONSUMER.DELETE.S.c", ""), ("STREAM.UPDATE.S", {}),
        ("DIRECT.GET.S", {"seq": 1}), ("STREAM.DELETE.S", ""), ("INFO", ""),
    ):  # fmt: skip
        both.ask(call, body)
