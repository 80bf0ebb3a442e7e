"""What somebody with credentials tries besides: on our server and, where it is there, on nats-server."""

from __future__ import annotations

import json
import time

import pytest

from pelton import nkeys
from pelton.server.logs.trace_log import without_secrets
from pelton.server.settings.accounts import AccountSettings, Export, Import
from tests.server.accounts_house import House, messages
from tests.server.auth import signed
from tests.server.auth.live import KINDS, OK, VIOLATION, Talk, attempt, configured
from tests.server.configured import Configured
from tests.server.test_tracing import Traced

both = pytest.mark.parametrize("kind", KINDS)

MAPPED = """
accounts: { A: {
    mappings: { in.open: in.secret, in.hidden: in.plain }
    users: [
        {user: all, password: x}
        {user: few, password: x, permissions: {publish: [in.open, in.plain]}}
        {user: not, password: x, permissions: {publish: {deny: in.secret}}}
    ]
} }
"""


@both
def test_a_mapping_leads_nobody_where_he_may_not_publish(kind, tmp_path):
    """What counts is where the message goes."""
    with configured(kind, tmp_path, MAPPED) as server, Talk(server) as everything:
        everything.connect(user="all", **{"pass": "x"})
        everything.send("SUB in.* 1\n")
        assert everything.say("PING\n") == "PONG"
        refused = "-ERR 'Permissions Violation for Publish to \"in.secret\"'"
        for user in ("few", "not"):
            with Talk(server) as talk:
                talk.connect(user=user, **{"pass": "x"})
                assert talk.say("PUB in.open 1\nx\n") == refused
                assert talk.say("PUB in.hidden 1\nx\nPING\n") == "PONG"
                assert everything.line() == "MSG in.plain 1 1"
                everything.line()


@both
def test_a_traced_message_asks_for_the_same_permissions(kind, tmp_path):
    with configured(kind, tmp_path, MAPPED) as server, Talk(server) as talk:
        talk.connect(user="few", headers=True, **{"pass": "x"})
        head = "NATS/1.0\nNats-Trace-Dest: in.plain\n\n"
        size = len(head.replace("\n", "\r\n"))
        answer = talk.say(f"HPUB in.open {size} {size}\n{head}\n")
        assert answer == "-ERR 'Permissions Violation for Publish to \"in.secret\"'"


GUESTS = """
authorization {
    users: [
        {user: guest, password: x}
        {user: few, password: x, permissions: {subscribe: [mine.>, both]}}
    ]
}
no_auth_user: guest
"""


def test_who_was_a_guest_keeps_no_subscriptions_that_he_may_not_have(tmp_path):
    """nats-server ends them all."""
    with configured("pelton", tmp_path, GUESTS) as server, Talk(server) as talk:
        talk.send("SUB > 1\nSUB both 2\n")
        assert talk.say("PING\n") == "PONG"
        refused = "-ERR 'Permissions Violation for Subscription to \">\"'"
        assert talk.connect(user="few", **{"pass": "x"}).startswith(refused[:-1])
        assert talk.line() == "PONG"
        assert talk.line().startswith("INFO ")  # which account it is in now
        with Talk(server) as other:
            other.connect()
            other.say("PUB secret 1\nx\nPUB both 1\nx\nPING\n")
        assert talk.line() == "MSG both 2 1"


def test_what_a_server_shows_to_another_is_no_secret_of_the_log_s():
    """A leaf's CONNECT goes out; a name without a password may be a token."""
    traced = Traced()
    said = {"user": "hush", "auth_token": "hush", "pass": "p4ss", "jwt": "j", "name": "me"}
    traced.reactor.trace_log.sent(traced.client, b"CONNECT " + json.dumps(said).encode() + b"\r\n")
    (line,) = traced.stream.getvalue().splitlines()
    assert "hush" not in line
    assert "p4ss" not in line
    assert '"name":"me"' in line
    assert json.loads(without_secrets(b'{"user":"u","pass":"v"}'))["user"] == "u"


SCOPED_KEY = {
    "kind": "user_scope",
    "key": signed.SCOPED.public,
    "role": "r",
    "template": {"pub": {"allow": ["by.{{name()}}"]}, "subs": -1, "data": -1, "payload": -1},
}


def test_permissions_that_are_no_subjects_let_nobody_in(tmp_path):
    """nats-server leaves them out, a deny too."""
    account = signed.account_jwt(signing_keys=[SCOPED_KEY])
    blank = {"signer": signed.SCOPED, "account": signed.ACCOUNT, "limits": False, "name": "u q"}
    with configured("pelton", tmp_path, signed.config(account)) as server:
        for token in (
            signed.user_jwt(pub={"deny": ["a.>.b"]}),
            signed.user_jwt(sub={"allow": ["a.>.b q"]}),
            signed.user_jwt(**blank),
        ):
            assert attempt(server, sign=signed.USER.seed, jwt=token) == VIOLATION
        assert attempt(server, sign=signed.USER.seed, jwt=signed.user_jwt()) == OK


@both
def test_times_beyond_64_bits_are_none(kind, tmp_path):
    with configured(kind, tmp_path, signed.config(signed.account_jwt())) as server:
        for name in ("exp", "nbf", "iat"):
            token = _token(**{name: 1 << 63})
            assert attempt(server, sign=signed.USER.seed, jwt=token) == VIOLATION
        assert attempt(server, sign=signed.USER.seed, jwt=_token()) == OK


def _token(**claims):
    """A user JWT with claims that no library would write."""
    import base64

    def part(raw):
        return base64.urlsafe_b64encode(raw).decode().rstrip("=")

    nats = {"type": "user", "version": 2, **signed.NO_LIMITS}
    body = {"iss": signed.ACCOUNT.public, "sub": signed.USER.public, "nats": nats}
    body |= {"iat": int(time.time()), **claims}
    text = part(b'{"typ":"JWT","alg":"ed25519-nkey"}') + "." + part(json.dumps(body).encode())
    return f"{text}.{part(signed.ACCOUNT.sign(text.encode()))}"


@both
def test_a_signature_counts_for_its_own_connection(kind, tmp_path):
    """The nonce of another connection, and none at all."""
    with configured(kind, tmp_path, signed.config(signed.account_jwt())) as server:
        token = signed.user_jwt()
        with Talk(server) as first, Talk(server) as second:
            sig = nkeys.sign_nonce(signed.USER.seed, first.info["nonce"])
            assert second.connect(jwt=token, sig=sig) == VIOLATION
            assert first.connect(jwt=token, sig=sig) == OK
        for sig in ("", "AAAA", "!", "A" * 86):
            assert attempt(server, jwt=token, sig=sig) == VIOLATION


def test_requests_that_wait_for_answers_are_bounded_in_bytes():
    """Reply subjects are as long as lines may be: the oldest request goes."""
    house = House(
        [
            AccountSettings("A", exports=[Export("help", service=True)]),
            AccountSettings("B", imports=[Import("A", "help", service=True)]),
        ]
    )
    served, asking = house.of("A"), house.of("B")
    served.send("SUB help 1\r\n")
    asking.send("SUB in.> 1\r\nPUB help in.first 0\r\n\r\n")
    links = house.accounts._links
    assert links is not None
    service = links._linked["A"].services["help"]
    service.most_bytes = 10_000
    for number in range(100):
        asking.send(f"PUB help in.{number:0>997} 0\r\n\r\n")
        assert service.reply_bytes == sum(len(each.reply) for each in service.responses.values())
        assert service.reply_bytes <= 10_000
    assert len(service.responses) == 10
    replies = [each[2] for each in messages(served)]
    for reply in (replies[0], replies[-1]):
        served.send(f"PUB {reply} 2\r\nok\r\n")
    assert [each[0] for each in messages(asking)] == [f"in.{99:0>997}"]
    assert service.reply_bytes == 9_000


LEAFS = """
listen: 127.0.0.1:@port
leafnodes { listen: 127.0.0.1:@ws, authorization { user: leaf, password: right } }
"""


def test_guessing_passwords_is_slow_for_leafs_too():
    """Ten failures are answered at once; others wait, and never a good login."""
    server = Configured("pelton", LEAFS)

    def attempt_as_leaf(password):
        with server.connect("ws") as leaf:
            leaf.recv(65536)
            said = json.dumps({"user": "leaf", "pass": password, "name": "n"})
            begun = time.monotonic()
            leaf.sendall(f"CONNECT {said}\r\n".encode())
            return leaf.recv(65536), time.monotonic() - begun

    try:
        for _ in range(10):
            assert b"Authorization Violation" in attempt_as_leaf("wrong")[0]
        waits = []
        for _ in range(3):
            answer, seconds = attempt_as_leaf("wrong")
            assert answer.startswith(b"-ERR 'Authorization Violation'")
            waits.append(seconds)
        assert sum(waits) > 0.15
        answer, seconds = attempt_as_leaf("right")
        assert answer.startswith(b"INFO")
    finally:
        server.stop()
