"""The system account on a reactor whose clients are fed by hand: who hears what, who may ask what, and that
nothing is made for nobody.
"""

import gzip
import json
from itertools import pairwise

import pytest

from pelton.core.base.s2 import FrameReader
from pelton.core.broker.session import Sessions
from pelton.server.accounts.registry import Accounts
from pelton.server.auth.authenticator import Authenticator
from pelton.server.clients.clients import Clients
from pelton.server.monitor import ServerState
from pelton.server.monitor.slices import finish
from pelton.server.settings.accounts import AccountSettings
from pelton.server.settings.users import Permissions, Responses, SubjectPermission, User
from pelton.server.system import STATSZ_NS, System
from pelton.server.system.envelope import compressed
from pelton.server.system.message_trace import parse
from pelton.server.system.services import REPORTS

from .test_clients import SECOND, World


class Doer:
    """What the services did."""

    def __init__(self, reactor):
        self.reactor = reactor
        self.done = []
        self.audits = []
        self.problem = ""

    def reload_configuration(self):
        self.done.append("reload")
        return self.problem

    def disconnect_client(self, cid):
        found = [c for c in self.reactor.all_connections() if c.id == cid]
        for connection in found:
            self.reactor.disconnect(connection, "Kicked")
        return bool(found)

    def send_lame_duck(self, cid):
        self.done.append(cid)
        return "" if cid == 1 else "no such client id"

    def audit(self, subject, request, answer):
        self.audits.append((subject, request))

    def purge_account(self, name):
        self.done.append(name)
        return "no" if name == "bad" else ""


class Town(World):
    """A world with accounts A (users a and c) and $SYS (user sys)."""

    def __init__(self):
        limited = Permissions(
            SubjectPermission(["x.>", "$SYS.REQ.>"]), SubjectPermission(deny=["y"]), Responses()
        )
        users = [
            User("sys", "pw", account="$SYS"),
            User("a", "pw", account="A"),
            User("c", "pw", account="A", permissions=limited),
        ]
        super().__init__(users=users)
        accounts = Accounts(self.reactor, draw=lambda n: 0)
        accounts.apply([AccountSettings("A")])
        self.accounts = accounts
        old = self.clients
        self.clients = Clients(
            self.reactor,
            self.settings,
            old.greeting,
            old.log,
            Authenticator(self.settings),
            accounts,
        )
        self.sessions = Sessions(self.reactor, self.clients.connect, accounts.default.router, True)
        self.reactor.on_close = self.clients.closed
        self.facts = ServerState(
            settings=self.settings,
            server_id="NID",
            server_name="town",
            host="127.0.0.1",
            port=4222,
            http_port=0,
            start_ns=self.clock.now(),
            reactor=self.reactor,
            clients=self.clients,
            accounts=accounts.all,
            jetstream=lambda: None,
        )
        self.looked = 0
        self.doer = Doer(self.reactor)
        self.system = System(
            self.look, "NID", accounts.system.router, self.doer, lambda call: call()
        )
        accounts.when_made(
            lambda made: (
                self.system.serve(made.name, made.router) if made is not accounts.system else None
            )
        )
        self.clients.system = self.sessions.message_trace = self.system

    def look(self):
        self.looked += 1
        return self.facts

    def enter(self, user, password="pw", **more):
        connection = self.join()
        connection.take()
        asked = {"verbose": False, "headers": True, "no_responders": True, "name": user} | more
        self.say(
            connection, "CONNECT " + json.dumps(asked | {"user": user, "pass": password}) + "\n"
        )
        return connection

    def heard(self, connection):
        """(subject, body) of what waits for a connection."""
        self.reactor.turn()
        return messages(connection.take())

    def ask(self, connection, subject, body="", headers=""):
        self.say(connection, "SUB in 9\n")
        block = f"NATS/1.0\n{headers}\n\n" if headers else ""
        sizes = f"{len(block) + block.count(chr(10))} " if headers else ""
        total = len(body) + (int(sizes) if headers else 0)
        verb = "HPUB" if headers else "PUB"
        found = self.say(connection, f"{verb} {subject} in {sizes}{total}\n{block}{body}\n")
        found += self.say(connection, "UNSUB 9\n")
        answers = messages(found.encode("utf-8", "surrogateescape"))
        return answers[0][1] if answers else None


def messages(raw):
    """(subject, body) of MSG and HMSG operations; bodies as JSON where they are."""
    found = []
    while raw:
        line, _, raw = raw.partition(b"\r\n")
        words = line.split(b" ")
        if words[0] not in (b"MSG", b"HMSG"):
            continue
        size = int(words[-1])
        body, raw = raw[:size], raw[size + 2 :]
        if words[0] == b"HMSG":
            body = body[int(words[-2]) :]
        try:
            found.append((words[1].decode(), json.loads(body)))
        except ValueError:
            found.append((words[1].decode(), body))
    return found


def test_nothing_is_made_for_nobody():
    town = Town()
    for _ in range(3):
        town.reactor.disconnect(town.enter("a"), "Client Closed")
    town.enter("a", "wrong")
    town.system.tick(town.clock.now() + STATSZ_NS)
    town.system.leaving(lame_duck=False)
    assert town.looked == 0


def test_who_comes_and_goes_is_told():
    town = Town()
    system = town.enter("sys")
    town.say(system, "SUB $SYS.ACCOUNT.> 1\n")
    alice = town.enter("a", lang="x", version="1")
    events = dict(town.heard(system))
    client = events["$SYS.ACCOUNT.A.CONNECT"]["client"]
    assert (client["id"], client["acc"], client["user"], client["lang"]) == (
        alice.id,
        "A",
        "a",
        "x",
    )
    assert events["$SYS.ACCOUNT.A.SERVER.CONNS"]["conns"] == 1
    assert events["$SYS.ACCOUNT.A.CONNECT"]["server"]["name"] == "town"
    town.say(alice, "PUB x 5\nhello\n")
    town.reactor.disconnect(alice, "Client Closed")
    events = dict(town.heard(system))
    gone = events["$SYS.ACCOUNT.A.DISCONNECT"]
    assert (gone["reason"], gone["sent"]) == ("Client Closed", {"msgs": 1, "bytes": 5})
    assert gone["received"] == {"msgs": 0, "bytes": 0}
    assert events["$SYS.ACCOUNT.A.SERVER.CONNS"]["conns"] == 0
    assert events["$SYS.ACCOUNT.A.SERVER.CONNS"]["received"]["msgs"] == 1


def test_a_refusal_is_told_without_the_password():
    town = Town()
    system = town.enter("sys")
    town.say(system, "SUB $SYS.SERVER.> 1\n")
    town.enter("a", "s3cret")
    ((subject, event),) = town.heard(system)
    assert subject == "$SYS.SERVER.NID.CLIENT.AUTH.ERR"
    assert (event["reason"], event["client"]["user"]) == ("Authentication Failure", "a")
    assert "s3cret" not in json.dumps(event)


def test_what_is_said_from_time_to_time():
    town = Town()
    system = town.enter("sys")
    town.say(system, "SUB $SYS.SERVER.> 1\nSUB $SYS.ACCOUNT.*.SERVER.CONNS 2\n")
    town.enter("a")
    town.heard(system)
    times, now = [], town.clock.now()
    end = now + 65 * SECOND
    while now < end:
        due = town.system.tick(now)
        times += [(now, subject) for subject, _ in town.heard(system)]
        now = due
    statsz = [at for at, subject in times if subject.endswith("STATSZ")]
    beats = [at for at, subject in times if subject == "$SYS.ACCOUNT.A.SERVER.CONNS"]
    gaps = [(b - a) / SECOND for a, b in pairwise(statsz)]
    assert gaps[:6] == [0.5, 1, 2, 4, 8, 10]
    assert len(beats) == 2


def test_the_end_is_told():
    town = Town()
    system = town.enter("sys")
    town.say(system, "SUB $SYS.SERVER.> 1\n")
    town.system.leaving(lame_duck=True)
    town.system.leaving(lame_duck=False)
    assert [subject.rpartition(".")[2] for subject, _ in town.heard(system)] == [
        "LAMEDUCK",
        "SHUTDOWN",
    ]


@pytest.mark.parametrize(
    "name",
    [*REPORTS, "IDZ"],
)
def test_the_server_answers_for_itself_and_everybody(name):
    town = Town()
    system = town.enter("sys")
    for subject in (f"$SYS.REQ.SERVER.PING.{name}", f"$SYS.REQ.SERVER.NID.{name}"):
        found = town.ask(system, subject)
        if name == "IDZ":
            assert found == {"name": "town", "host": "127.0.0.1", "id": "NID"}
        else:
            assert found["server"]["id"] == "NID"
            assert "data" in found
    assert town.ask(system, f"$SYS.REQ.SERVER.OTHER.{name}") == b""  # 503: nobody is there


def test_a_filter_leaves_out_other_servers():
    town = Town()
    system = town.enter("sys")
    for wanted, answered in (
        ({"server_name": "tow"}, True),
        ({"server_name": "tow", "exact_match": True}, False),
        ({"host": "127"}, True),
        ({"cluster": "c"}, False),
        ({"tags": ["t"]}, False),
        ({"domain": "d"}, False),
    ):
        found = town.ask(system, "$SYS.REQ.SERVER.PING.VARZ", json.dumps(wanted))
        assert bool(found) == answered, wanted


def test_an_account_asks_about_itself_alone():
    town = Town()
    alice, system = town.enter("a"), town.enter("sys")
    rows = town.ask(alice, "$SYS.REQ.ACCOUNT.PING.CONNZ")["data"]["connections"]
    assert [row["cid"] for row in rows] == [alice.id]
    rows = town.ask(alice, "$SYS.REQ.SERVER.PING.CONNZ", '{"acc":"$SYS"}')["data"]["connections"]
    assert [row["cid"] for row in rows] == [alice.id]
    (row,) = town.ask(alice, "$SYS.REQ.ACCOUNT.PING.STATZ")["data"]["account_statz"]
    assert row["acc"] == "A"
    for subject in (
        "$SYS.REQ.SERVER.PING.VARZ",
        "$SYS.REQ.SERVER.NID.KICK",
        "$SYS.REQ.ACCOUNT.$SYS.CONNZ",
        "$SYS.REQ.USER.A.INFO",
        "$JS.API.ACCOUNT.PURGE.A",
    ):
        assert town.ask(alice, subject, json.dumps({"cid": system.id})) == b"", subject
    assert not system.closed


def test_everybody_is_told_who_they_are():
    town = Town()
    found = town.ask(town.enter("a"), "$SYS.REQ.USER.INFO")["data"]
    assert found == {"user": "a", "account": "A", "account_name": "A"}
    found = town.ask(town.enter("sys"), "$SYS.REQ.USER.INFO")["data"]
    assert found["account"] == "$SYS"
    limited = town.enter("c")
    # its answers come to a subject that it may use
    found = town.ask(limited, "$SYS.REQ.USER.INFO")["data"]["permissions"]
    assert found == {
        "publish": {"allow": ["x.>", "$SYS.REQ.>"]},
        "subscribe": {"deny": ["y"]},
        "responses": {"max": 1, "ttl": 120 * SECOND},
    }


def test_what_can_be_done_from_afar():
    town = Town()
    alice, system = town.enter("a"), town.enter("sys")
    found = town.ask(system, "$SYS.REQ.SERVER.NID.RELOAD")
    assert "error" not in found
    town.doer.problem = "line 3 is broken"
    error = town.ask(system, "$SYS.REQ.SERVER.NID.RELOAD")["error"]
    assert error == {"code": 500, "description": "line 3 is broken"}
    error = town.ask(system, "$SYS.REQ.SERVER.NID.KICK", '{"cid":99}')["error"]
    assert error["description"] == "no such client or leafnode id"
    assert "error" not in town.ask(
        system, "$SYS.REQ.SERVER.NID.KICK", json.dumps({"cid": alice.id})
    )
    assert alice.closed
    assert town.ask(system, "$SYS.REQ.SERVER.NID.LDM", '{"cid":7}')["error"]["code"] == 500
    assert "error" not in town.ask(system, "$SYS.REQ.SERVER.NID.LDM", '{"cid":1}')
    assert town.ask(system, "$JS.API.ACCOUNT.PURGE.A")["initiated"] is True
    assert town.ask(system, "$JS.API.ACCOUNT.PURGE.bad")["error"]["description"] == "no"
    assert town.doer.done == ["reload", "reload", 7, 1, "A", "bad"]


@pytest.mark.parametrize("body", ["{", '{"limit":"x"}', "[]", '{"sort":"beauty"}', "\udc80"])
def test_a_bad_request_is_told(body):
    town = Town()
    found = town.ask(
        town.enter("sys"), "$SYS.REQ.SERVER.PING.CONNZ", body.encode("utf-8", "replace").decode()
    )
    assert found["error"]["code"] in (400, 500)
    assert found["error"]["description"]


def test_subscribers_are_counted():
    town = Town()
    system = town.enter("sys")
    town.say(system, "SUB a.* 1\nSUB a.b q 2\nSUB a.> q 3\n")
    for body, count in (("a.b", 3), ("a.b q", 2), ("a.c", 2), ("a.*", 2), ("z", 0), ("", 0)):
        assert town.ask(system, "$SYS.DEBUG.SUBSCRIBERS", body) == count, body


def test_answers_are_packed_as_asked():
    data = b"pelton " * 10_000
    headers, packed = finish(compressed(data, "gzip"))
    assert gzip.decompress(packed) == data
    assert b"Content-Encoding: gzip\r\n" in headers
    headers, packed = finish(compressed(data, "snappy"))
    assert packed.startswith(b"\xff\x06\x00\x00sNaPpY")
    reader, found = FrameReader(), b""
    reader.feed(b"\xff\x06\x00\x00S2sTwO" + packed[10:])
    while (block := reader.next()) is not None:
        assert len(block) <= 1 << 16  # snappy's blocks are no larger
        found += block
    assert found == data
    assert finish(compressed(data, "br")) == (
        b"NATS/1.0\r\nContent-Encoding: identity\r\n\r\n",
        data,
    )
    assert finish(compressed(data, "")) == (b"", data)


# -- traces


def trace(town, connection, subject, headers, reply=""):
    """The trace of one message, and what the connection itself was told."""
    block = "NATS/1.0\n" + headers + "\n"
    size = len(block.replace("\n", "\r\n"))
    town.say(connection, "SUB traces 77\n")
    said = town.say(connection, f"HPUB {subject} {reply} {size} {size + 2}\n{block}hi\n")
    town.say(connection, "UNSUB 77\n")
    return [body for name, body in messages(said.encode()) if name == "traces"], said


def kinds(found):
    return [(event["type"], event.get("error", "")) for event in found["events"]]


def test_a_trace_says_who_gets_a_message():
    town = Town()
    alice, bob = town.enter("a"), town.enter("a", echo=False)
    town.say(bob, "SUB foo 1\nSUB fo.* 2\nSUB foo q 3\n")
    (found,), _ = trace(town, alice, "foo", "Nats-Trace-Dest: traces\n")
    first, *rest = found["events"]
    assert (first["type"], first["acc"], first["subj"], first["cid"]) == (
        "in",
        "A",
        "foo",
        alice.id,
    )
    assert [(e["sub"], e.get("queue"), e["cid"]) for e in rest] == [
        ("foo", None, bob.id),
        ("foo", "q", bob.id),
    ]
    assert [subject for subject, _ in town.heard(bob)] == ["foo", "foo"]
    assert found["request"]["header"] == {"Nats-Trace-Dest": ["traces"]}
    (found,), _ = trace(town, bob, "foo", "Nats-Trace-Dest: traces\n")
    assert {error for _, error in kinds(found)[1:]} == {"Not delivered because of no echo"}


def test_a_trace_only_delivers_nothing():
    town = Town()
    alice, bob = town.enter("a"), town.enter("a")
    town.say(bob, "SUB foo 1\n")
    (found,), _ = trace(town, alice, "foo", "Nats-Trace-Dest: traces\nNats-Trace-Only: on\n")
    assert [kind for kind, _ in kinds(found)] == ["in", "eg"]
    assert town.heard(bob) == []
    # what is no destination traces nothing, and drops what was to be traced only
    found, _ = trace(town, alice, "foo", "Nats-Trace-Dest: a.*\nNats-Trace-Only: on\n")
    assert found == []
    assert town.heard(bob) == []
    found, _ = trace(town, alice, "foo", "Nats-Trace-Dest: a.*\n")
    assert found == []
    assert len(town.heard(bob)) == 1


def test_a_trace_goes_where_its_sender_may_publish():
    town = Town()
    limited, bob = town.enter("c"), town.enter("a")
    town.say(bob, "SUB x.> 1\n")
    found, said = trace(town, limited, "x.y", "Nats-Trace-Dest: forbidden\n")
    assert found == []
    assert 'Permissions Violation for Publish to "forbidden"' in said
    assert town.heard(bob) == []


def test_an_account_traces_what_is_sampled():
    town = Town()
    alice, bob = town.enter("a"), town.enter("a")
    town.say(bob, "SUB foo 1\n")
    head = "traceparent: 00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-0"
    assert trace(town, alice, "foo", head + "1\n")[0] == []
    account = town.accounts.get("A")
    account.settings.trace_destination = "traces"
    account.router.traces = True
    assert len(trace(town, alice, "foo", head + "1\n")[0]) == 1
    assert trace(town, alice, "foo", head + "0\n")[0] == []
    assert trace(town, alice, "foo", "other: x\n")[0] == []


def test_header_blocks():
    assert parse(b"NATS/1.0\r\nA: 1\r\nB:2 \r\nA:\t3\r\nempty:\r\n: x\r\nno\r\n\r\n") == {
        "A": ["1", "3"],
        "B": ["2"],
    }
