"""Clients on a reactor without sockets: greeting, CONNECT, credentials, pings. Time is set by hand."""

import io
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pelton.core.base.clock import Clock
from pelton.core.broker.reactor import Reactor
from pelton.core.broker.session import Sessions
from pelton.server.accounts.registry import Accounts
from pelton.server.auth import Authenticator
from pelton.server.clients.clients import CHECKED_AT_ONCE, NEVER_NS, Clients
from pelton.server.clients.closed_connections import (
    ClosedConnection,
    ClosedConnections,
    ClosedSubscription,
)
from pelton.server.identity import Greeting
from pelton.server.logs.log import Log
from pelton.server.settings import Settings
from pelton.server.settings.users import User

SECOND = 1_000_000_000


class World:
    """A reactor with clients that are fed by hand."""

    def __init__(self, **settings):
        self.settings = Settings(**settings)
        self.clock = Clock(1000 * SECOND)
        self.reactor = Reactor(self.clock)
        self.accounts = Accounts(self.reactor, draw=lambda n: 0)
        self.router = self.accounts.default.router
        self.text = io.StringIO()
        log = Log(stream=self.text, debug=True, trace=True)
        greeting = Greeting(self.settings, "NID", "name", "h", 4222)
        authenticator = Authenticator(self.settings)
        self.clients = Clients(
            self.reactor, self.settings, greeting, log, authenticator, self.accounts
        )
        self.sessions = Sessions(
            self.reactor, self.clients.connect, self.router, self.settings.auth_required
        )
        self.sessions.on_first_pong = self.clients.ponged
        self.reactor.on_close = self.clients.closed

    def join(self):
        connection = self.sessions.accept()
        self.clients.greet(connection, "10.0.0.1", 999)
        return connection

    def say(self, connection, text):
        self.sessions.feed(connection, text.encode().replace(b"\n", b"\r\n"))
        self.reactor.turn()
        return connection.take().decode()

    def after(self, seconds):
        self.clock.advance(round(seconds * SECOND))
        self.reactor.turn()
        return self.clients.sweep(self.reactor.now_ns)


def test_a_client_is_greeted_with_its_own_id_and_address():
    world = World()
    first, second = world.join(), world.join()
    infos = [json.loads(c.take()[5:]) for c in (first, second)]
    assert [i["client_id"] for i in infos] == [first.id, second.id]
    assert infos[0]["client_ip"] == "10.0.0.1"
    assert (world.clients.open, world.clients.total) == (2, 2)


def test_connect_sets_what_it_names_and_leaves_the_rest_at_the_protocols_defaults():
    world = World()
    c = world.join()
    c.take()
    assert world.say(c, "CONNECT {}\n") == "+OK\r\n"
    assert (c.verbose, c.pedantic, c.echo, c.headers, c.no_responders) == (
        True,
        True,
        True,
        False,
        False,
    )
    text = (
        'CONNECT {"verbose":false,"pedantic":false,"echo":false,"headers":true,'
        '"no_responders":true,"name":"n","lang":"l","version":"v","protocol":1,"later":[1]}\n'
    )
    assert world.say(c, text) == ""
    assert (c.verbose, c.pedantic, c.echo, c.headers, c.no_responders) == (
        False,
        False,
        False,
        True,
        True,
    )
    assert (c.session.name, c.session.lang, c.session.version) == ("n", "l", "v")


@pytest.mark.parametrize(
    ("text", "answer", "reason"),
    [
        ("{", "", "Parse Error"),
        ("[]", "", "Parse Error"),
        ('"x"', "", "Parse Error"),
        ("\xff", "", "Parse Error"),
        ('{"verbose":1}', "", "Parse Error"),
        ('{"protocol":"1"}', "", "Parse Error"),
        ('{"protocol":2}', "-ERR 'invalid client protocol'\r\n", "Bad Client Protocol Version"),
        (
            '{"no_responders":true}',
            "-ERR 'no responders requires headers support'\r\n",
            "No Responders Requires Headers",
        ),
        ('{"account":"A"}', "-ERR 'Authorization Violation'\r\n", "Authentication Failure"),
    ],
)
def test_a_connect_that_is_refused(text, answer, reason):
    world = World()
    c = world.join()
    c.take()
    assert world.say(c, f"CONNECT {text}\n") == answer
    assert (c.closed, c.reason) == (True, reason)
    assert world.clients.open == 0
    assert world.clients.departed[0].reason == reason


def test_credentials_are_asked_for_and_checked():
    world = World(users=[User("a", "x")])
    good, bad, rude = world.join(), world.join(), world.join()
    infos = [json.loads(c.take()[5:]) for c in (good, bad, rude)]
    assert all(i["auth_required"] for i in infos)
    assert world.say(good, 'CONNECT {"user":"a","pass":"x","verbose":false}\nPING\n') == "PONG\r\n"
    assert good.session.user == "a"
    assert (
        world.say(bad, 'CONNECT {"user":"a","pass":"y"}\n') == "-ERR 'Authorization Violation'\r\n"
    )
    assert world.say(rude, "PING\n") == "-ERR 'Authorization Violation'\r\n"
    assert [c.closed for c in (good, bad, rude)] == [False, True, True]
    assert "x" not in world.text.getvalue().split("authentication error")[1]


def test_who_does_not_say_who_it_is_in_time_has_to_go():
    world = World(token="t")
    c = world.join()
    c.take()
    world.after(1.9)
    assert c.take() == b""
    world.after(0.2)
    assert c.take() == b"-ERR 'Authentication Timeout'\r\n"
    assert c.closed


def test_too_many_connections_are_refused_after_their_greeting():
    world = World(max_connections=2)
    kept = [world.join(), world.join()]
    refused = world.join()
    text = refused.take()
    assert text.startswith(b"INFO {")
    assert text.endswith(b"-ERR 'maximum connections exceeded'\r\n")
    assert refused.closed
    kept[0].take()
    world.reactor.disconnect(kept[0], "Client Closed")
    assert not world.join().closing


def test_nobody_is_welcome_when_the_maximum_is_zero():
    world = World(max_connections=0)
    assert b"maximum connections exceeded" in world.join().take()


def test_a_silent_client_is_pinged_and_then_closed():
    world = World(ping_interval_ns=10 * SECOND, ping_max=2)
    c = world.join()
    c.take()
    world.after(3)
    assert c.take() == b"PING\r\n"
    world.after(10)
    assert c.take() == b"PING\r\n"
    world.after(10)
    assert c.take() == b"-ERR 'Stale Connection'\r\n"
    assert (c.closed, c.reason) == (True, "Stale Connection")
    assert world.clients.stale == 1


def test_a_client_that_answers_stays():
    world = World(ping_interval_ns=10 * SECOND, ping_max=2)
    c = world.join()
    c.take()
    pings = 0
    for _ in range(100):
        world.after(1)
        if c.take():
            pings += 1
            world.say(c, "PONG\n")
    assert not c.closed
    assert 8 <= pings <= 11


def test_a_busy_client_is_not_pinged_after_the_first_time():
    world = World(ping_interval_ns=10 * SECOND, ping_max=2)
    c = world.join()
    world.say(c, 'CONNECT {"verbose":false}\n')
    seen = b""
    for _ in range(100):
        world.after(1)
        world.say(c, "PUB a 1\nx\n")
        seen += c.take()
    assert not c.closed
    assert seen.count(b"PING") <= 1


def test_sweep_tells_when_it_is_needed_again():
    world = World()
    assert world.after(0) == NEVER_NS
    c = world.join()
    due = world.after(0)
    assert 2 * SECOND <= due - world.reactor.now_ns <= 3 * SECOND
    world.after(3)
    assert c.session.due_ns - world.reactor.now_ns == 120 * SECOND


def test_the_departed_are_remembered_up_to_a_number():
    world = World(max_closed_clients=3)
    for _ in range(5):
        world.sessions.eof(world.join())
    assert [d.cid for d in world.clients.departed] == [3, 4, 5]
    assert world.clients.departed[0].reason == "Client Closed"


def subscribed(world, *subjects):
    connection = world.join()
    world.say(connection, "".join(f"SUB {s} {k}\n" for k, s in enumerate(subjects)))
    world.sessions.eof(connection)


def test_the_departed_have_their_subscriptions_by_name_up_to_a_number():
    world = World(max_closed_clients=5)
    world.clients.departed = ClosedConnections(5, listed=4)
    for subjects in (["a"], ["b", "c"], [], ["d"], ["e", "f"]):
        subscribed(world, *subjects)
    kept = [[s.subject for s in gone.held] for gone in world.clients.departed]
    assert kept == [[], [], [], [b"d"], [b"e", b"f"]]  # the oldest go first, until the rest fit
    assert [gone.subscriptions for gone in world.clients.departed] == [1, 2, 0, 1, 2]
    assert world.clients.departed.listed == 3


@given(
    size=st.integers(0, 4),
    listed=st.integers(0, 9),
    counts=st.lists(st.integers(0, 5), max_size=30),
)
def test_no_more_subscriptions_of_the_departed_are_kept_than_said(size, listed, counts):
    ring = ClosedConnections(size, listed)
    for cid, count in enumerate(counts):
        held = [ClosedSubscription(b"s", b"", b"1", 0, 0)] * count
        ring.append(ClosedConnection(cid, None, 0, 0, 0, "", 0, 0, 0, 0, 0, 0, 0, count, held))
        there = list(ring)
        assert [gone.cid for gone in there] == list(range(cid + 1))[-size or cid + 1 :]
        assert ring.listed == sum(len(gone.held) for gone in there) <= listed
        newest = 0
        for gone in reversed(there):  # of the newest ones as many as fit
            newest += gone.subscriptions
            if newest > listed:
                break
            assert len(gone.held) == gone.subscriptions


def test_long_subscriptions_of_the_departed_count_for_more():
    """However long their names are: what they take stays bounded."""
    ring = ClosedConnections(1000, listed=100)
    for cid in range(50):
        held = [ClosedSubscription(b"s" * 3000, b"q" * 500, b"1" * 500, 0, 0)] * 5
        ring.append(ClosedConnection(cid, None, 0, 0, 0, "", 0, 0, 0, 0, 0, 0, 0, 5, held))
    kept = [sum(len(s.subject + s.queue + s.sid) for s in gone.held) for gone in ring]
    assert len(kept) == 50
    assert kept[-1] == 20_000
    assert 0 < sum(kept) <= 100 * 256
    assert ring.listed <= 100


def test_the_infos_after_the_greeting_have_the_connections_own_limits():
    user = User("a", "x")
    world = World(users=[user], no_auth_user="a", max_payload=500)
    c = world.join()
    greeting = json.loads(c.take()[5:])
    assert "auth_required" not in greeting
    world.say(c, 'CONNECT {"verbose":false,"protocol":1}\n')
    c.session.max_payload = 100  # of its account
    answer = json.loads(world.say(c, "PING\n").removeprefix("PONG\r\nINFO "))
    told = {"max_payload": 100, "auth_required": True, "connect_info": True}
    assert answer == {**greeting, **told, "remote_account": "$G"}
    assert world.say(c, "PING\n") == "PONG\r\n"
    world.settings.max_payload = 50
    world.clients.tell_lame_duck()
    later = json.loads(c.take()[5:])
    assert later == {**greeting, "max_payload": 50, "auth_required": True}


def test_lame_duck_is_told_to_those_who_understand_it():
    world = World()
    old, new, early = (world.join() for _ in range(3))
    world.say(old, 'CONNECT {"verbose":false}\nPING\n')
    world.say(new, 'CONNECT {"verbose":false,"protocol":1}\nPING\n')
    world.say(early, 'CONNECT {"verbose":false,"protocol":1}\n')  # no PONG yet: not ready
    world.clients.greeting.refresh(world.settings, lame_duck=True)
    world.clients.tell_lame_duck()
    assert old.take() == early.take() == b""
    assert json.loads(new.take()[5:])["ldm"] is True


def test_after_new_credentials_everybody_has_to_come_again():
    world = World()
    c = world.join()
    world.say(c, 'CONNECT {"verbose":false}\n')
    world.settings.token = "t"
    world.clients.reloaded(["token"])
    assert c.take() == b"-ERR 'Authorization Violation'\r\n"


def test_after_a_lower_maximum_the_newest_go():
    world = World()
    clients = [world.join() for _ in range(4)]
    for c in clients:
        c.take()
    world.settings.max_connections = 2
    world.clients.reloaded(["max_connections"])
    assert [b"exceeded" in c.take() for c in clients] == [False, False, True, True]


def test_secrets_are_not_logged():
    world = World(user="a", password="hidden-x")
    c = world.join()
    world.say(c, 'CONNECT {"user":"a","pass":"hidden-y","auth_token":"hidden-z"}\n')
    assert "hidden" not in world.text.getvalue()


def test_refused_clients_are_logged_ten_times_a_second_at_most():
    world = World(token="t")
    for _ in range(25):
        world.say(world.join(), 'CONNECT {"auth_token":"wrong"}\n')
    assert world.text.getvalue().count("authentication error - Token") == 10
    world.after(1)
    world.say(world.join(), 'CONNECT {"auth_token":"wrong"}\n')
    assert "authentication errors: 15 more lines were not logged" in world.text.getvalue()
    assert world.text.getvalue().count("authentication error - Token") == 11


def test_who_fails_often_waits_for_the_answer_and_others_do_not():
    world = World(users=[User("a", "x")])
    waiting = []
    world.clients.call_at = lambda when_ns, call: waiting.append((when_ns, call))
    answers = []
    for _ in range(15):
        c = world.join()
        c.take()
        answers.append(world.say(c, 'CONNECT {"user":"a","pass":"y"}\n'))
    assert answers == ["-ERR 'Authorization Violation'\r\n"] * 10 + [""] * 5
    times = [when_ns - world.reactor.now_ns for when_ns, _ in waiting]
    assert times == sorted(times)
    assert len(set(times)) == 5
    good = world.join()
    good.take()
    assert world.say(good, 'CONNECT {"user":"a","pass":"x","verbose":false}\nPING\n') == "PONG\r\n"
    waiting[-1][1]()
    assert c.take() == b"-ERR 'Authorization Violation'\r\n"
    assert c.closed
    assert not good.closed


@pytest.mark.parametrize("how", ["a reload", "a JWT"])
def test_clients_are_checked_again_a_few_in_each_turn(how):
    world = World(users=[User("a", "x"), User("b", "x")])
    crowd = [world.join() for _ in range(10 * CHECKED_AT_ONCE)]
    for number, each in enumerate(crowd):
        world.say(each, f'CONNECT {{"user":"{"ab"[number % 2]}","pass":"x"}}\n')
    asked = []
    still_valid = world.clients.authenticator.still_valid
    world.clients.authenticator.still_valid = lambda each: asked.append(each) or still_valid(each)
    world.settings.users = [User("a", "x")]
    if how == "a reload":
        world.clients.reloaded(["users"])
    else:
        world.clients.authenticator.refresh()
        world.clients.account_changed("$G")
    turns = 0
    while len(asked) < len(crowd):
        assert len(asked) <= CHECKED_AT_ONCE * (turns + 1)
        turns += 1
        world.reactor.turn()
        assert turns < 20
    assert [each.closed for each in crowd] == [False, True] * (len(crowd) // 2)


def test_a_long_jwt_counts_as_many_clients():
    world = World()
    crowd = [world.join() for _ in range(10)]
    for each in crowd:
        world.say(each, "CONNECT {}\n")
        each.session.admitted.jwt = "x" * 1_000_000
    asked = []
    world.clients.authenticator.still_valid = lambda each: asked.append(each) or each
    world.clients.account_changed("$G")
    assert len(asked) == 1
    for _ in range(20):
        world.reactor.turn()
    assert len(asked) == len(crowd)
