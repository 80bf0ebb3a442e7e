"""Reports about thousands of connections, subscriptions, consumers and imports are made in slices: what one
slice does is counted, in calls of functions.
"""

import itertools
import json
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pelton.server.monitor import answer_in_slices
from pelton.server.monitor.encoding import json_in_slices, to_json
from pelton.server.monitor.slices import SLICE, finish
from pelton.server.settings.accounts import (
    AccountSettings,
    Export,
    Import,
    Mapping,
    MappingTarget,
)
from pelton.server.system.services import WAITING_MAX
from tests.counting import calls_of
from tests.ways import length

from .test_monitor import House
from .test_system import Town

MANY = length(2000, 3000)
ROWS = length(20_000, 50_000)
CALLS_MAX = 40_000  # of functions in one slice: a few milliseconds


def longest_slice(work):
    """(calls in the slice with the most, number of slices, result) of a report."""
    most = slices = 0
    ended = []

    def step():
        try:
            next(work)
        except StopIteration as done:
            ended.append(done.value)

    while not ended:
        most = max(most, calls_of(step))
        slices += 1
    return most, slices, ended[0]


def crowded():
    house = House()
    for number in range(MANY):
        client = house.join()
        text = 'CONNECT {"verbose":false}\n' + "".join(
            f"SUB a.{number}.{n} {n}\n" for n in range(3)
        )
        house.say(client, text)
    crowd = house.join()
    house.say(crowd, 'CONNECT {"verbose":false}\n')
    for number in range(MANY):
        house.say(crowd, f"SUB b.{number} {number}\n")
    return house


@pytest.fixture(scope="module")
def house():
    return crowded()


@pytest.mark.parametrize(
    ("path", "query"),
    [
        ("/connz", {"limit": "100000"}),
        ("/connz", {"limit": "100000", "subs": "1"}),
        ("/connz", {"limit": "100000", "subs": "detail", "sort": "subs"}),
        ("/connz", {"limit": "100000", "acc": "$G", "filter_subject": "b.>"}),
        ("/subsz", {"limit": "100000", "subs": "1"}),
        ("/subsz", {"limit": "100000", "subs": "1", "test": "b.7"}),
        ("/accountz", {"acc": "$G"}),
        ("/accstatz", {"unused": "1"}),
        ("/metrics", {}),
    ],
)
def test_a_slice_is_short_however_many_connections_there_are(house, path, query):
    most, slices, answer = longest_slice(answer_in_slices(house.facts, path, query))
    assert answer.status == 200
    assert most < CALLS_MAX
    assert slices > 1


def test_pages_have_the_rows_that_they_should(house):
    whole = house.json("/subsz", subs="1", limit="100000")
    part = house.json("/subsz", subs="1", offset="100", limit="50")
    assert (whole["total"], part["total"]) == (4 * MANY, 4 * MANY)
    assert part["subscriptions_list"] == whole["subscriptions_list"][100:150]


def test_connections_that_close_meanwhile_are_left_out():
    house = House()
    clients = [house.join() for _ in range(500)]
    work = answer_in_slices(house.facts, "/connz", {"limit": "1000"})
    next(work)
    for each in clients:
        house.reactor.disconnect(each, "Kicked")
    shown = json.loads(finish(work).body)
    assert shown["num_connections"] == len(shown["connections"]) < len(clients)


def test_an_account_with_thousands_of_imports_is_shown_in_slices():
    house = House()
    subjects = [f"s.{number}" for number in range(MANY)]
    exports = [Export(each, service=True) for each in subjects]
    imports = [Import("A", each, service=True) for each in subjects]
    mappings = [Mapping(f"m.{each}", [MappingTarget(each)]) for each in subjects]
    revoked = dict.fromkeys(subjects, 1)
    house.accounts.apply(
        [
            AccountSettings("A", exports=exports),
            AccountSettings("B", imports=imports, mappings=mappings, revoked_users=revoked),
        ]
    )
    for name in "AB":
        work = answer_in_slices(house.facts, "/accountz", {"acc": name})
        most, slices, answer = longest_slice(work)
        assert most < CALLS_MAX
        assert slices > 1
        assert len(json.loads(answer.body)["account_detail"]) > 5


def test_streams_and_consumers_are_shown_in_slices(tmp_path):
    house = House(tmp_path)
    client = house.join()
    house.say(client, 'CONNECT {"verbose":false}\n')
    for number in range(30):
        name = f"S{number}"
        config = json.dumps({"name": name, "subjects": [f"{name}.>"], "storage": "memory"})
        house.request(client, f"$JS.API.STREAM.CREATE.{name}", config)
        for each in range(10):
            consumer = {"durable_name": f"c{each}", "ack_policy": "explicit"}
            body = json.dumps({"stream_name": name, "config": consumer})
            house.request(client, f"$JS.API.CONSUMER.DURABLE.CREATE.{name}.c{each}", body)
    asked = {"streams": "1", "consumers": "1", "config": "1", "accounts": "1"}
    most, slices, answer = longest_slice(answer_in_slices(house.facts, "/jsz", asked))
    assert most < CALLS_MAX
    assert slices > 10
    shown = json.loads(answer.body)["account_details"][0]["stream_detail"]
    assert [len(each["consumer_detail"]) for each in shown] == [10] * 30
    work = answer_in_slices(house.facts, "/jsz", asked)
    next(work)
    house.request(client, "$JS.API.STREAM.DELETE.S29", "")
    assert len(json.loads(finish(work).body)["account_details"][0]["stream_detail"]) == 29
    house.store.engine.close()


values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5) | st.just("<&>\u2028"),
    lambda inner: st.lists(inner, max_size=30) | st.dictionaries(st.text(max_size=3), inner),
    max_leaves=60,
)


@given(values, st.sampled_from([None, 2]))
def test_text_in_slices_is_the_text_made_at_once(body, indent):
    text = to_json(body, indent).encode("utf-8", "replace")
    assert finish(json_in_slices(body, indent)) == text


@pytest.mark.parametrize("indent", [None, 2])
@pytest.mark.parametrize("wrapped", [False, True])
def test_long_text_is_made_in_slices(indent, wrapped):
    """The rows are freed in slices, too."""

    def made():
        body = {"rows": [{"a": number, "b": str(number)} for number in range(ROWS)], "n": [1] * 5}
        return {"data": body, "server": {"name": "x"}} if wrapped else body

    body = made()
    rows = (body["data"] if wrapped else body)["rows"]
    held = [len(rows)]

    def watched(work):
        try:
            while True:
                next(work)
                held.append(len(rows))
                yield
        except StopIteration as done:
            return done.value

    most, slices, text = longest_slice(watched(json_in_slices(body, indent)))
    assert json.loads(text) == made()
    assert most < CALLS_MAX
    assert slices > ROWS // 833
    assert max(before - after for before, after in itertools.pairwise(held)) <= SLICE
    assert held[-1] <= SLICE


def test_the_system_account_is_answered_over_several_turns():
    town = Town()
    asker, other = town.enter("sys"), town.enter("a")
    for _ in range(MANY):
        town.join()
    town.say(asker, "SUB in.* 1\n")
    town.say(other, "SUB in.* 1\n")
    town.reactor.budget.most = 1
    body = '{"limit":100000}'
    request = f"PUB $SYS.REQ.SERVER.PING.CONNZ in.1 {len(body)}\n{body}\n"
    town.sessions.feed(asker, request.replace("\n", "\r\n").encode())
    town.sessions.feed(other, b"PUB $SYS.REQ.USER.INFO in.2 0\r\n\r\n")
    town.reactor.turn()
    assert b"in.2" in other.take()
    assert asker.take() == b""
    turns = 0
    while not (answered := asker.take()):
        town.reactor.turn()
        turns += 1
        assert turns < 10_000
    assert turns > 10
    assert json.loads(answered.partition(b"\r\n")[2])["data"]["num_connections"] == MANY + 2


def test_each_request_of_a_client_is_answered_in_order():
    town = Town()
    asker = town.enter("sys")
    town.say(asker, "SUB in.* 1\n")
    town.reactor.budget.most = 2
    number = WAITING_MAX + 5
    requests = b"".join(
        b"PUB $SYS.REQ.SERVER.PING.CONNZ in.%d 0\r\n\r\n" % n for n in range(number)
    )
    town.sessions.feed(asker, requests + b"PING\r\n")
    turns = 1
    while town.reactor.turn():
        turns += 1
        assert turns < 10_000
    answered = asker.take()
    assert re.findall(rb"MSG (in\.\d+) 1 ", answered) == [b"in.%d" % n for n in range(number)]
    assert answered.endswith(b"PONG\r\n")
    assert turns > number // 2
    assert b"error" not in answered


def test_requests_that_no_client_waits_for_are_refused_above_a_limit():
    town = Town()
    asker = town.enter("sys")
    for _ in range(MANY):
        town.join()
    town.say(asker, "SUB in.* 1\n")
    town.reactor.budget.most = 1
    for number in range(WAITING_MAX + 5):
        subject, body = "$SYS.REQ.SERVER.PING.CONNZ", b'{"limit":100000}'
        town.system.router.publish_message(subject, body, f"in.{number}")
    assert asker.take().count(b"too many requests of this account") == 5
