"""``pelton stream find`` and ``search``, and schedules of ``pelton pub``."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pelton import StoredMessage, StreamConfig
from pelton.cli.streams.searching import _path_test, steps_of
from pelton.sync import connect
from tests.ways import length

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.cli.conftest import Ran
    from tests.peers import ServerProcess

    Run = Callable[..., Ran]

MESSAGES = [
    ("a", {"Color": "red"}, b'{"order": {"id": 7, "items": ["nut", "bolt"]}}'),
    ("b", {"Color": "blue"}, b'{"order": {"id": 8, "items": []}, "note": null}'),
    ("b", {}, b"plain Text \xff"),
    ("c", {"Size": "7"}, b'["nut"]'),
]


@pytest.fixture(params=["direct", "leader", "workqueue"])
def stream(request: pytest.FixtureRequest, peer: ServerProcess, unique: str) -> Iterator[str]:
    """A stream with the messages."""
    with connect(peer.url) as client:
        js = client.jetstream()
        js.create_stream(
            StreamConfig(
                name=unique,
                subjects=[f"{unique}.>"],
                allow_direct=request.param == "direct",
                retention="workqueue" if request.param == "workqueue" else "limits",
            )
        )
        for subject, headers, data in MESSAGES:
            js.publish(f"{unique}.{subject}", data, headers=headers)
        js.delete_message(unique, js.publish(f"{unique}.b", b"gone").seq)
        yield unique
        js.delete_stream(unique)


@pytest.mark.parametrize(
    ("options", "seqs"),
    [
        ((), [1, 2, 3, 4]),
        (("nut",), [1, 4]),
        (("text",), []),
        (("text", "-i"), [3]),
        (("-E", "^plain|^\\["), [3, 4]),
        (("--header", "color"), []),
        (("--header", "Color"), [1, 2]),
        (("--header", "Color: blue"), [2]),
        (("--header", "Color", "bolt"), [1]),
        (("--json-path", "order.id=8"), [2]),
        (("--json-path", "$.order.items[0]"), [1]),
        (("--json-path", "order.items[1]=bolt"), [1]),
        (("--json-path", "[0]=nut"), [4]),
        (("--json-path", "note=null"), [2]),
        (("--json-path", "order.items=[]"), [2]),
        (("--subject", "STREAM.b"), [2, 3]),
        (("--subject", "STREAM.none"), []),
        (("--seq", "3"), [3, 4]),
        (("--since", "1h", "-n", "1"), [1]),
    ],
)
def test_messages_are_found(
    at: Run, stream: str, options: tuple[str, ...], seqs: list[int]
) -> None:
    given = [each.replace("STREAM", stream) for each in options]
    ran = at("stream", "search", stream, *given, "--json")
    assert [each["seq"] for each in ran.lines] == seqs
    assert ran.status == (0 if seqs else 1)


def test_messages_are_printed_as_stored(at: Run, stream: str) -> None:
    out = at("stream", "search", stream, "Text").out
    assert re.match(rf"\[#3\] {stream}\.b \d{{4}}-.*\nplain Text ", out)
    assert at("stream", "search", stream, "Text", "--raw").out == "plain Text \udcff\n"
    assert "Color: red\n" in at("stream", "search", stream, "-n", 1).out


def test_mistakes_of_a_search(at: Run, stream: str) -> None:
    for words, says in (
        (("--json-path", "a..b"), "is not a path"),
        (("--json-path", ""), "is not a path"),
        (("-E", "("), "is not a regular expression"),
        (("--header", ":x"), "is not a header"),
        (("--seq", 1, "--since", "1h"), "exclude each other"),
    ):
        ran = at("stream", "search", stream, *words)
        assert (ran.status, ran.out) == (2, ""), words
        assert says in ran.err
    assert at("stream", "search", f"{stream}X").status == 1


NAMES = st.text(st.characters(exclude_characters=".[]=$", exclude_categories=["Cs"]), min_size=1)
TREES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(st.characters(exclude_categories=["Cs"])),
    lambda inner: st.lists(inner) | st.dictionaries(NAMES, inner),
)


def every_path(tree: object, path: str) -> Iterator[tuple[str, object]]:
    if path:
        yield path, tree
    if isinstance(tree, dict):
        for name, each in tree.items():
            yield from every_path(each, f"{path}.{name}" if path else name)
    elif isinstance(tree, list):
        for n, each in enumerate(tree):
            yield from every_path(each, f"{path}[{n}]")


@given(TREES)
@settings(max_examples=length(20, 100))
def test_every_value_is_found_by_its_path(tree: object) -> None:
    message = StoredMessage("s", 1, json.dumps(tree).encode(), {}, 0)
    for path, value in every_path(tree, ""):
        text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
        assert _path_test(path)(message)
        assert _path_test(f"{path}={text}")(message)
        assert not _path_test(f"{path}={text}?")(message)
        assert not _path_test(f"{path}.no such name")(message)
        assert steps_of(f"$.{path}" if path[0] != "[" else f"${path}") == steps_of(path)


def test_streams_are_found(at: Run, peer: ServerProcess, unique: str) -> None:
    held, empty = f"{unique}A", f"{unique}B"
    at("stream", "add", held, "--subjects", f"{unique}.a.>")
    at("stream", "add", empty, "--subjects", f"{unique}.*.x,{unique}B")
    at("pub", "-J", f"{unique}.a.y.z", "1")
    at("consumer", "add", held, "c")

    def found(*options: object) -> set[str]:
        return {
            each
            for each in at("stream", "find", *options, "-n").out.splitlines()
            if each.startswith(unique)
        }

    try:
        assert found() == {held}  # the second one would have overlapped
        at("stream", "add", empty, "--subjects", f"{unique}.b.x")
        assert found() == {held, empty}
        assert found("--subject", f"{unique}.a.y.z") == {held}
        assert found("--subject", f"{unique}.>") == {held, empty}
        assert found("--subject", f"{unique}.>", "--stored") == {held}
        assert found("--subject", f"{unique}.a.q", "--stored") == set()
        assert found("--empty") == {empty}
        assert found("--empty", "--invert") == {held}
        assert found("--consumers", 0) == {empty}
        assert found("--created", "1h") == found("--idle", "1h") == set()
        assert found("--created", "0s") == {held, empty}
        assert found("--mirrored") == found("--sourced") == set()
        (only,) = at("stream", "query", "--subject", f"{unique}.b.x", "--json").json
        assert only["config"]["name"] == empty
        assert held in at("stream", "find", "--subject", f"{unique}.a.y.z").out
        assert at("stream", "find", "--subject", f"{unique}.none.at.all").status == 1
        assert at("stream", "find", "--stored").status == 2
    finally:
        for name in (held, empty):
            at("stream", "rm", "-f", name)


def test_a_stream_publishes_later(at: Run, peer: ServerProcess, unique: str) -> None:
    with connect(peer.url) as client:
        js = client.jetstream()
        js.create_stream(
            StreamConfig(
                name=unique,
                subjects=[f"{unique}.>"],
                allow_msg_schedules=True,
                allow_msg_ttl=True,
            )
        )
        dest = ("--schedule-dest", f"{unique}.due")
        try:
            every = at("pub", f"{unique}.a", "x", "--every", "30s", *dest, "-H", "A: b", "--json")
            assert every.json["stream"] == unique
            cron = ("--cron", "0 0 8 * * mon-fri", "--schedule-tz", "Europe/Berlin")
            assert at("pub", f"{unique}.b", "x", *cron, *dest).out == (
                f"stored in {unique} at sequence 2\n"
            )
            assert at("pub", f"{unique}.c", "x", "--at", "2090-01-01T00:00:00Z", *dest).status == 0
            assert at("pub", f"{unique}.d", "now", "--after", "100ms", *dest).status == 0
            found = {each.subject: each for each in js.iter_schedules(unique)}
            assert found[f"{unique}.a"].pattern == "@every 30s"
            assert found[f"{unique}.a"].headers.get_all("A") == ["b"]
            assert found[f"{unique}.b"].time_zone == "Europe/Berlin"
            assert found[f"{unique}.c"].pattern == "@at 2090-01-01T00:00:00Z"
            due = js.ordered_consumer(unique, filter_subjects=[f"{unique}.due"]).next()
            assert due is not None
            assert due.data == b"now"
            for words, says in (
                (("--every", "30s"), "--schedule-dest is missing"),
                (("--every", "30s", "--at", "x", *dest), "give one of"),
                (dest, "needs one of"),
                (("--every", "1ms", *dest), "at least a second"),
                (("--cron", "x", *dest), "not a cron pattern"),
                (("--every", "1m", "--count", 2, *dest), "a schedule has no"),
            ):
                ran = at("pub", f"{unique}.e", "x", *words)
                assert (ran.status, ran.out) == (2, ""), words
                assert says in ran.err
        finally:
            js.delete_stream(unique)
