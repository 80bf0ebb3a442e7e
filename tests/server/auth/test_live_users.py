"""Users of a configuration: who is let in and what refused ones are told, on our server and on
nats-server.
"""

from __future__ import annotations

import select
import signal
import time

import bcrypt
import pytest

from pelton import nkeys
from tests.server.auth.live import KINDS, OK, VIOLATION, Talk, attempt, configured

HASH = bcrypt.hashpw(b"x", b"$2b$04$abcdefghijklmnopqrstuu").decode()
KEY = nkeys.KeyPair(nkeys.USER, bytes(range(32)))
OTHER = nkeys.KeyPair(nkeys.USER, bytes(32))
both = pytest.mark.parametrize("kind", KINDS)

MANY = f"""
authorization {{
    users: [
        {{user: a, password: x}}
        {{user: h, password: "{HASH}"}}
        {{nkey: {KEY.public}}}
        {{user: ws, password: x, allowed_connection_types: [websocket]}}
        {{user: none}}
    ]
}}
"""


@both
def test_users_by_name_hash_and_nkey(kind, tmp_path):
    with configured(kind, tmp_path, MANY) as server:
        with Talk(server) as talk:
            assert talk.info["auth_required"] is True
            assert len(talk.info["nonce"]) == 15
        seed, wrong = KEY.seed, OTHER.seed
        assert attempt(server, user="a", **{"pass": "x"}) == OK
        assert attempt(server, user="a", **{"pass": "y"}) == VIOLATION
        assert attempt(server, user="h", **{"pass": "x"}) == OK
        assert attempt(server, user="h", **{"pass": "y"}) == VIOLATION
        assert attempt(server, user="h", **{"pass": HASH}) == VIOLATION
        assert attempt(server, user="ws", **{"pass": "x"}) == VIOLATION
        assert attempt(server, user="none") == OK
        assert attempt(server, user="b", **{"pass": "x"}) == VIOLATION
        assert attempt(server) == VIOLATION
        assert attempt(server, auth_token="x") == VIOLATION
        assert attempt(server, nkey=KEY.public, sign=seed) == OK
        assert attempt(server, nkey=KEY.public, sign=wrong) == VIOLATION
        assert attempt(server, nkey=OTHER.public, sign=wrong) == VIOLATION
        assert attempt(server, nkey=KEY.public) == VIOLATION
        assert attempt(server, nkey=OTHER.public, sign=wrong, user="a", **{"pass": "x"}) == (
            VIOLATION
        )
        assert attempt(server, user="a", account="A", **{"pass": "x"}) == VIOLATION


@both
@pytest.mark.parametrize("first", ["PING", "SUB a 1", "PUB a 1\nx", "PONG"])
def test_who_does_not_begin_with_connect_is_refused(kind, first, tmp_path):
    with configured(kind, tmp_path, MANY) as server, Talk(server) as talk:
        assert talk.say(f"{first}\n") == VIOLATION
        assert talk.line() == ""


@both
@pytest.mark.parametrize(
    ("text", "good", "bad"),
    [
        ("user: a, pass: x", {"user": "a", "pass": "x"}, {"user": "a", "pass": "y"}),
        (f'user: a, pass: "{HASH}"', {"user": "a", "pass": "x"}, {"user": "b", "pass": "x"}),
        ("token: t", {"auth_token": "t"}, {"user": "t", "pass": "t"}),
        (f'token: "{HASH}"', {"auth_token": "x"}, {"auth_token": HASH}),
    ],
)
def test_a_single_user_or_token(kind, text, good, bad, tmp_path):
    with configured(kind, tmp_path, f"authorization {{ {text} }}") as server:
        with Talk(server) as talk:
            assert "nonce" not in talk.info
        assert attempt(server, **good) == OK
        assert attempt(server, **bad) == VIOLATION
        assert attempt(server) == VIOLATION


@both
def test_a_user_for_those_who_show_nothing(kind, tmp_path):
    with configured(kind, tmp_path, MANY + "no_auth_user: a") as server:
        with Talk(server) as talk:
            assert "auth_required" not in talk.info
            assert talk.connect() == OK
        with Talk(server) as talk:
            assert talk.say("SUB a 1\nPUB a 1\nx\nPING\n") == "MSG a 1 1"
        assert attempt(server, user="a", **{"pass": "y"}) == VIOLATION
        assert attempt(server, user="h", **{"pass": "x"}) == OK
        assert attempt(server, auth_token="x") == VIOLATION


@both
def test_who_shows_nothing_is_in_the_account_of_that_user(kind, tmp_path):
    """With CONNECT, and without one."""
    text = """
        accounts { A { users: [{user: a, pass: x}] }, B { users: [{user: b, pass: x}] } }
        no_auth_user: b
    """
    with configured(kind, tmp_path, text) as server:
        talks = {}
        for name in ("a", "b"):
            talks[name] = Talk(server)
            assert talks[name].connect(user=name, **{"pass": "x"}) == OK
            assert talks[name].say("SUB x 1\nPING\n") == OK
        with Talk(server) as talk:
            assert talk.say("PUB x 1\n1\nPING\n") == OK
        with Talk(server) as talk:
            assert talk.connect() == OK
            assert talk.say("PUB x 1\n2\nPING\n") == OK
        assert [talks["b"].say(""), talks["b"].line()] == ["MSG x 1 1", "1"]
        assert [talks["b"].say(""), talks["b"].line()] == ["MSG x 1 1", "2"]
        assert talks["a"].say("PING\n") == OK
        for talk in talks.values():
            talk.close()


@both
def test_who_says_nothing_has_to_go(kind, tmp_path):
    text = "authorization { token: t, timeout: 0.5 }"
    with configured(kind, tmp_path, text) as server, Talk(server) as talk:
        assert talk.line() == "-ERR 'Authentication Timeout'"
        assert talk.line() == ""


PERMISSIONS = """
authorization {
    default_permissions { publish: "default.>", subscribe: [_INBOX.>, "q.* workers"] }
    users: [
        {user: default, pass: x}
        {user: own, pass: x, permissions: {
            publish: {allow: ["a.>", "b"], deny: "a.secret"}, subscribe: {deny: [a.secret]}
        }}
        {user: service, pass: x, permissions: {subscribe: "svc", allow_responses: true}}
    ]
}
"""


@both
def test_permissions(kind, tmp_path):
    with configured(kind, tmp_path, PERMISSIONS) as server:
        for user, line, answer in [
            ("default", "PUB default.a 0\n\nPING", OK),
            ("default", "PUB other 0\n", "-ERR 'Permissions Violation for Publish to \"other\"'"),
            ("default", "SUB _INBOX.x 1\nPING", OK),
            ("default", "SUB a 1", "-ERR 'Permissions Violation for Subscription to \"a\"'"),
            ("default", "SUB q.a workers 1\nPING", OK),
            (
                "default",
                "SUB q.a others 1",
                '-ERR \'Permissions Violation for Subscription to "q.a" using queue "others"\'',
            ),
            ("own", "PUB a.b 0\n\nPING", OK),
            ("own", "PUB b 0\n\nPING", OK),
            (
                "own",
                "PUB a.secret 0\n",
                "-ERR 'Permissions Violation for Publish to \"a.secret\"'",
            ),
            ("own", "SUB a.* 1\nPING", OK),
            (
                "own",
                "SUB a.secret 1",
                "-ERR 'Permissions Violation for Subscription to \"a.secret\"'",
            ),
            ("service", "PUB a 0\n", "-ERR 'Permissions Violation for Publish to \"a\"'"),
            ("service", "SUB svc 1\nPING", OK),
        ]:
            with Talk(server) as talk:
                assert talk.connect(user=user, **{"pass": "x"}) == OK
                assert talk.say(f"{line}\n") == answer, (user, line)


@both
def test_a_reload_disconnects_who_may_no_longer_stay(kind, tmp_path):
    before = "authorization {{ users: [{0}] }}"
    stays = "{user: stays, pass: x}\n"
    narrows = "{user: narrows, pass: x}\n"
    goes = "{user: goes, pass: x}\n"
    changes = "{user: changes, pass: x}"
    with configured(kind, tmp_path, before.format(stays + narrows + goes + changes)) as server:
        talks = {name: Talk(server) for name in ("stays", "narrows", "goes", "changes")}
        for name, talk in talks.items():
            assert talk.connect(user=name, **{"pass": "x"}) == OK
        assert talks["narrows"].say("SUB a 1\nSUB b 2\nPING\n") == OK
        narrows = "{user: narrows, pass: x, permissions: {subscribe: b}}\n"
        changes = "{user: changes, pass: y}"
        (tmp_path / f"{kind}.conf").write_text(before.format(stays + narrows + changes))
        server.process.send_signal(signal.SIGHUP)
        assert talks["goes"].say("") == ""
        assert talks["changes"].say("") == VIOLATION
        violation = '-ERR \'Permissions Violation for Subscription to "a" (sid "1")\''
        assert talks["narrows"].say("") == violation
        assert talks["narrows"].say("PING\n") == OK
        assert talks["stays"].say("PING\n") == OK
        for talk in talks.values():
            talk.close()


def test_brute_force_is_slowed_and_nobody_else_is(tmp_path):
    """Of our own: nats-server answers each attempt at once."""
    hashed = bcrypt.hashpw(b"x", bcrypt.gensalt(10)).decode()
    text = f'authorization {{ users: [{{user: a, pass: y}}, {{user: h, pass: "{hashed}"}}] }}'
    with configured("pelton", tmp_path, text) as server:
        began = time.monotonic()
        attempts = [Talk(server) for _ in range(60)]
        for number, talk in enumerate(attempts):
            talk.send(
                f'CONNECT {{"user":"h","pass":"{number}"}}\n' if number % 2 else "CONNECT {}\n"
            )
        for _ in range(20):  # the answer may be there where the test itself had to wait
            with Talk(server) as failing:
                failing.send("CONNECT {}\n")
                assert attempt(server, user="a", **{"pass": "y"}) == OK
                if not select.select([failing.socket], [], [], 0)[0]:
                    break
        else:
            pytest.fail("who knows the password had to wait for all the others")
        for talk in attempts:
            assert talk.line() == VIOLATION
        slow = time.monotonic() - began
        for talk in attempts:
            talk.close()
    assert slow > 1
