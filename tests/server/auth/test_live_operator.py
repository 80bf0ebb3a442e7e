"""The operator mode on our server and on nats-server: whose JWT lets in, what refused ones are told,
and what account updates do to those who are there.
"""

from __future__ import annotations

import json
import signal
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from pelton import nkeys
from pelton.api.times import parse_time
from tests.server.auth import signed
from tests.server.auth.live import KINDS, OK, VIOLATION, Talk, attempt, configured
from tests.server.auth.signed import (
    ACCOUNT,
    OPERATOR,
    OTHER,
    SCOPED,
    SIGNER,
    STRANGER,
    SYSTEM,
    SYSTEM_USER,
    USER,
    account_jwt,
    user_jwt,
)

both = pytest.mark.parametrize("kind", KINDS)
SEED = USER.seed
TEMPLATE = {
    "pub": {"allow": ["own.{{name()}}.>", "tag.{{tag(dept)}}"]},
    "sub": {"allow": ["_INBOX.>", "acc.{{account-name()}}"]},
    **signed.NO_LIMITS,
}
SCOPE = {"kind": "user_scope", "key": SCOPED.public, "role": "r", "template": TEMPLATE}


def main_account(**nats):
    return account_jwt(signing_keys=[SIGNER.public, SCOPE], **nats)


@both
def test_whose_jwt_lets_in(kind, tmp_path):
    past, future = signed.now() - 100, signed.now() + 1000
    outside = signed.pair(nkeys.ACCOUNT, 99)
    with configured(kind, tmp_path, signed.config(main_account())) as server:
        with Talk(server) as talk:
            assert talk.info["auth_required"] is True
            assert len(talk.info["nonce"]) == 15
        good = user_jwt()
        wrong_signature = good[:-8] + ("A" * 8 if good[-8:] != "A" * 8 else "B" * 8)
        for jwt, seed, answer in [
            (good, SEED, OK),
            (good, STRANGER.seed, VIOLATION),
            (good, "", VIOLATION),
            (wrong_signature, SEED, VIOLATION),
            ("", SEED, VIOLATION),
            ("eyJ", SEED, VIOLATION),
            (user_jwt(signer=SIGNER, account=ACCOUNT), SEED, OK),
            (user_jwt(signer=SIGNER), SEED, VIOLATION),
            (user_jwt(signer=OTHER, account=ACCOUNT), SEED, VIOLATION),
            (user_jwt(signer=outside), SEED, VIOLATION),
            (user_jwt(claims={"exp": past}), SEED, VIOLATION),
            (user_jwt(claims={"exp": future}), SEED, OK),
            (user_jwt(claims={"nbf": future}), SEED, VIOLATION),
            (user_jwt(bearer_token=True), "", OK),
            (user_jwt(src=["127.0.0.0/8"]), SEED, OK),
            (user_jwt(src=["10.0.0.0/8"]), SEED, VIOLATION),
            (user_jwt(src=["nonsense"]), SEED, VIOLATION),
            (user_jwt(allowed_connection_types=["STANDARD"]), SEED, OK),
            (user_jwt(allowed_connection_types=["websocket"]), SEED, VIOLATION),
            (user_jwt(allowed_connection_types=["PHONE"]), SEED, VIOLATION),
            (user_jwt(times=[{"start": "00:00:00", "end": "23:59:59"}]), SEED, OK),
            (user_jwt(signer=SCOPED, account=ACCOUNT, limits=False), SEED, OK),
            (user_jwt(signer=SCOPED, account=ACCOUNT), SEED, VIOLATION),
        ]:
            assert attempt(server, jwt=jwt, sign=seed) == answer, (jwt, seed)


@both
def test_only_accounts_of_the_operator_count(kind, tmp_path):
    stranger = signed.pair(nkeys.OPERATOR, 77)
    good = account_jwt(OTHER, claims={"exp": signed.now() + 1000})
    late = account_jwt(signed.pair(nkeys.ACCOUNT, 55), claims={"exp": signed.now() - 10})
    with configured(kind, tmp_path, signed.config(main_account(), good)) as server:
        assert attempt(server, jwt=user_jwt(signer=OTHER), sign=SEED) == OK
    assert late
    if kind == "pelton":  # nats-server does not start with such a preload
        foreign = account_jwt(OTHER, signer=stranger)
        with configured(kind, tmp_path, signed.config(main_account(), foreign, late)) as server:
            assert attempt(server, jwt=user_jwt(signer=OTHER), sign=SEED) == VIOLATION
            of_late = signed.pair(nkeys.ACCOUNT, 55)
            assert attempt(server, jwt=user_jwt(signer=of_late), sign=SEED) == VIOLATION


@both
def test_permissions_of_users_accounts_and_scopes(kind, tmp_path):
    account = main_account(default_permissions={"pub": {"deny": ["default.denied"]}})
    scoped = user_jwt(
        signer=SCOPED, account=ACCOUNT, limits=False, name="ann", tags=["dept:x", "dept:y"]
    )
    denied = "-ERR 'Permissions Violation for Publish to \"{}\"'"
    with configured(kind, tmp_path, signed.config(account)) as server:
        for jwt, subject, allowed in [
            (user_jwt(), "default.denied", False),
            (user_jwt(), "a", True),
            (user_jwt(pub={"allow": ["a"]}), "a", True),
            (user_jwt(pub={"allow": ["a"]}), "default.denied", False),
            (user_jwt(pub={"allow": ["a"]}), "b", False),
            (user_jwt(resp={"max": 1, "ttl": 0}), "b", False),
            (scoped, "own.ann.x", True),
            (scoped, "own.bob.x", False),
            (scoped, "tag.x", True),
            (scoped, "tag.y", True),
            (scoped, "tag.z", False),
        ]:
            with Talk(server) as talk:
                sig = nkeys.sign_nonce(SEED, talk.info["nonce"])
                assert talk.connect(jwt=jwt, sig=sig) == OK
                answer = talk.say(f"PUB {subject} 0\n\nPING\n")
                assert answer == (OK if allowed else denied.format(subject)), subject
        with Talk(server) as talk:
            sig = nkeys.sign_nonce(SEED, talk.info["nonce"])
            assert talk.connect(jwt=scoped, sig=sig) == OK
            assert talk.say("SUB acc.A 1\nPING\n") == OK
            refused = "-ERR 'Permissions Violation for Subscription to \"acc.B\"'"
            assert talk.say("SUB acc.B 2\n") == refused


def taken(server):
    """A connection that is taken once the server has seen others end."""
    deadline = time.monotonic() + 30
    while True:
        talk = Talk(server)
        answer = talk.connect(jwt=user_jwt(), sig=nkeys.sign_nonce(SEED, talk.info["nonce"]))
        if answer == OK:
            return talk
        talk.close()
        assert "connections exceeded" in answer
        assert time.monotonic() < deadline


@both
def test_limits(kind, tmp_path):
    account = main_account(limits={"conn": 2, "payload": 100})
    with configured(kind, tmp_path, signed.config(account)) as server:
        first, second, third = Talk(server), Talk(server), Talk(server)
        for talk, jwt in ((first, user_jwt(subs=1)), (second, user_jwt(payload=10))):
            assert talk.connect(jwt=jwt, sig=nkeys.sign_nonce(SEED, talk.info["nonce"])) == OK
        assert first.say("SUB a 1\nSUB b 2\n") == "-ERR 'maximum subscriptions exceeded'"
        assert first.say(f"PUB x 100\n{'x' * 100}\nPING\n") == OK
        assert first.say(f"PUB x 101\n{'x' * 101}\n") == "-ERR 'Maximum Payload Violation'"
        assert second.say("PUB x 11\nxxxxxxxxxxx\n") == "-ERR 'Maximum Payload Violation'"
        first.close()
        second.close()
        talks = [taken(server) for _ in range(2)]
        sig = nkeys.sign_nonce(SEED, third.info["nonce"])
        assert third.connect(jwt=user_jwt(), sig=sig) == (
            "-ERR 'maximum account active connections exceeded'"
        )
        for talk in (*talks, third):
            talk.close()


@both
def test_a_user_that_expires_has_to_go(kind, tmp_path):
    with configured(kind, tmp_path, signed.config(main_account())) as server, Talk(server) as talk:
        sig = nkeys.sign_nonce(SEED, talk.info["nonce"])
        assert talk.connect(jwt=user_jwt(claims={"exp": signed.now() + 2}), sig=sig) == OK
        assert talk.say("") == "-ERR 'User Authentication Expired'"
        assert talk.line() == ""


def system_user(server):
    """A connection of the system account."""
    talk = Talk(server)
    sig = nkeys.sign_nonce(SYSTEM_USER.seed, talk.info["nonce"])
    assert talk.connect(jwt=user_jwt(SYSTEM_USER, signer=SYSTEM), sig=sig) == OK
    return talk


def request(talk, subject, payload=""):
    """An answer's payload."""
    assert talk.say("SUB answer 9\nPING\n") == OK
    talk.send(f"PUB {subject} answer {len(payload)}\n{payload}\n")
    while not (line := talk.line()).startswith("MSG answer"):
        assert line, "closed"
    size = int(line.split()[-1])
    while len(talk.data) < size + 2:
        talk.data += talk.socket.recv(65536)
    body, talk.data = talk.data[:size], talk.data[size + 2 :]
    line = talk.say("UNSUB 9\nPING\n")
    for _ in range(20):  # there may be more than one answer
        line = line if line == OK else talk.line()
    assert line == OK
    return body.decode()


FULL = "{{ type: full, dir: '{}', allow_delete: true }}"


@both
@pytest.mark.parametrize("resolver", ["MEMORY", "full"])
def test_an_account_update_reaches_those_who_are_there(kind, resolver, tmp_path):
    shown = "MEMORY" if resolver == "MEMORY" else FULL.format(tmp_path / f"jwt-{kind}")
    text = signed.config(main_account(), resolver=shown)
    with configured(kind, tmp_path, text) as server:
        old = signed.now() - 50
        talks = {
            "revoked": user_jwt(issued_at=old),
            "stays": user_jwt(STRANGER),
        }
        opened = {}
        for name, jwt in talks.items():
            talk = opened[name] = Talk(server)
            seed = SEED if name == "revoked" else STRANGER.seed
            assert talk.connect(jwt=jwt, sig=nkeys.sign_nonce(seed, talk.info["nonce"])) == OK
        system = system_user(server)
        update = main_account(revocations={USER.public: old + 10})
        subject = f"$SYS.REQ.ACCOUNT.{ACCOUNT.public}.CLAIMS.UPDATE"
        answer = json.loads(request(system, subject, update))
        assert answer["data"] == {"account": ACCOUNT.public, "code": 200, "message": "jwt updated"}
        assert opened["revoked"].say("") == "-ERR 'User Authentication Revoked'"
        assert opened["stays"].say("PING\n") == OK
        assert attempt(server, jwt=user_jwt(issued_at=old), sign=SEED) == VIOLATION
        assert attempt(server, jwt=user_jwt(), sign=SEED) == OK
        everybody = main_account(revocations={"*": signed.now() + 5})
        answer = json.loads(request(system, subject, everybody))
        assert answer["data"]["code"] == 200
        assert opened["stays"].say("") == "-ERR 'User Authentication Revoked'"
        look_up = f"$SYS.REQ.ACCOUNT.{ACCOUNT.public}.CLAIMS.LOOKUP"
        if resolver == "full":
            assert request(system, look_up) == everybody
        system.close()


@both
def test_updates_that_are_refused(kind, tmp_path):
    folder = tmp_path / f"jwt-{kind}"
    with configured(
        kind, tmp_path, signed.config(main_account(), resolver=FULL.format(folder))
    ) as server:
        system = system_user(server)
        for subject, payload, words in [
            ("$SYS.REQ.CLAIMS.UPDATE", "nonsense", "jwt update resulted in error"),
            ("$SYS.REQ.CLAIMS.UPDATE", user_jwt(), "not account claim"),
            (
                f"$SYS.REQ.ACCOUNT.{OTHER.public}.CLAIMS.UPDATE",
                main_account(),
                "subject does not match jwt content",
            ),
            ("$SYS.REQ.CLAIMS.DELETE", "nonsense", "failed"),
        ]:
            answer = json.loads(request(system, subject, payload))
            assert answer["error"]["code"] == 500
            assert words in answer["error"]["description"], answer
        system.close()


@both
def test_listing_packing_and_deleting(kind, tmp_path):
    from pelton.server.auth.jwt import encode

    folder = tmp_path / f"jwt-{kind}"
    text = signed.config(main_account(), resolver=FULL.format(folder))
    with configured(kind, tmp_path, text) as server:
        system = system_user(server)
        other = account_jwt(OTHER, name="B")
        answer = json.loads(request(system, "$SYS.REQ.CLAIMS.UPDATE", other))
        assert answer["data"]["message"] == "jwt updated"
        assert (folder / f"{OTHER.public}.jwt").read_text() == other
        listed = json.loads(request(system, "$SYS.REQ.CLAIMS.LIST"))["data"]
        assert sorted(listed) == sorted([ACCOUNT.public, OTHER.public, SYSTEM.public])
        pack = request(system, "$SYS.REQ.CLAIMS.PACK")
        assert pack.split("|")[0] in listed
        user = Talk(server)
        sig = nkeys.sign_nonce(SEED, user.info["nonce"])
        assert user.connect(jwt=user_jwt(signer=OTHER), sig=sig) == OK
        claims = {
            "sub": OPERATOR.public,
            "nats": {"type": "generic", "accounts": [OTHER.public]},
        }
        request(system, "$SYS.REQ.CLAIMS.LIST")
        answer = json.loads(
            request(system, "$SYS.REQ.CLAIMS.DELETE", encode(claims, OPERATOR, signed.now()))
        )
        assert answer["data"]["message"] == "deleted 1 accounts", answer
        assert user.say("") == "-ERR 'Account Authentication Expired'"
        assert not (folder / f"{OTHER.public}.jwt").exists()
        assert attempt(server, jwt=user_jwt(signer=OTHER), sign=SEED) == VIOLATION
        user.close()
        system.close()


@both
def test_accounts_share_with_activations(kind, tmp_path):
    from pelton.server.auth.jwt import encode

    token = encode(
        {
            "sub": OTHER.public,
            "name": "act",
            "nats": {"type": "activation", "subject": "private.>", "kind": "stream"},
        },
        ACCOUNT,
        signed.now(),
    )
    exporter = main_account(
        exports=[
            {"name": "p", "subject": "private.>", "type": "stream", "token_req": True},
            {"name": "q", "subject": "public.>", "type": "stream"},
        ]
    )

    def importer(with_token):
        wanted = {"name": "p", "subject": "private.>", "account": ACCOUNT.public, "type": "stream"}
        if with_token:
            wanted["token"] = token
        open_to_all = {
            "name": "q",
            "subject": "public.>",
            "account": ACCOUNT.public,
            "type": "stream",
            "local_subject": "theirs.>",
        }
        return account_jwt(OTHER, name="B", imports=[wanted, open_to_all])

    for with_token in (True, False):
        text = signed.config(exporter, importer(with_token))
        with configured(kind, tmp_path, text) as server:
            giver, taker = Talk(server), Talk(server)
            for talk, signer in ((giver, ACCOUNT), (taker, OTHER)):
                sig = nkeys.sign_nonce(SEED, talk.info["nonce"])
                assert talk.connect(jwt=user_jwt(signer=signer), sig=sig) == OK
            assert taker.say("SUB > 1\nPING\n") == OK
            assert giver.say("PUB private.a 0\n\nPUB public.b 0\n\nPING\n") == OK
            if with_token:
                assert taker.say("") == "MSG private.a 1 0"
                assert taker.line() == ""
            assert taker.say("") == "MSG theirs.b 1 0"
            giver.close()
            taker.close()


@both
def test_a_sentinel_stands_for_those_without_a_jwt(kind, tmp_path):
    sentinel = user_jwt(bearer_token=True)
    text = signed.config(main_account(), extra=f"default_sentinel: {sentinel}")
    with configured(kind, tmp_path, text) as server:
        assert attempt(server) == OK
        assert attempt(server, jwt="nonsense") == OK
        assert attempt(server, jwt=user_jwt(), sign=STRANGER.seed) == VIOLATION


@both
def test_only_pinned_accounts_may_connect(kind, tmp_path):
    extra = f"resolver_pinned_accounts: [{OTHER.public}]"
    text = signed.config(main_account(), account_jwt(OTHER), extra=extra)
    with configured(kind, tmp_path, text) as server:
        assert attempt(server, jwt=user_jwt(), sign=SEED) == VIOLATION
        assert attempt(server, jwt=user_jwt(signer=OTHER), sign=SEED) == OK
        system_user(server).close()


@both
def test_accounts_from_an_account_server(kind, tmp_path):
    """The older way: accounts are asked for over HTTP when somebody of theirs comes."""
    asked = []
    tokens = {ACCOUNT.public: main_account(), SYSTEM.public: account_jwt(SYSTEM, name="SYS")}

    class Accounts(BaseHTTPRequestHandler):
        def do_GET(self):
            account = self.path.rsplit("/", 1)[-1]
            asked.append(account)
            body = tokens.get(account, "" if account else "here").encode()
            self.send_response(200 if body else 404)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_):
            pass

    http = ThreadingHTTPServer(("127.0.0.1", 0), Accounts)
    thread = threading.Thread(target=http.serve_forever, daemon=True)
    thread.start()
    try:
        url = f"http://127.0.0.1:{http.server_port}/jwt/v1/accounts/"
        text = f"operator: {signed.operator_jwt()}\nresolver: URL({url})\n"
        with configured(kind, tmp_path, text) as server:
            assert attempt(server, jwt=user_jwt(), sign=SEED) == OK
            assert attempt(server, jwt=user_jwt(), sign=SEED) == OK
            assert asked.count(ACCOUNT.public) <= 2  # nats-server asks once more at the start
            assert attempt(server, jwt=user_jwt(), sign=STRANGER.seed) == VIOLATION
            assert attempt(server, jwt=user_jwt(signer=OTHER), sign=SEED) == VIOLATION
            tokens[OTHER.public] = account_jwt(OTHER)
            assert attempt(server, jwt=user_jwt(signer=OTHER), sign=SEED) == OK
    finally:
        http.shutdown()
        http.server_close()


@both
def test_a_reload_takes_other_preloaded_accounts(kind, tmp_path):
    with configured(kind, tmp_path, signed.config(main_account())) as server:
        old = signed.now() - 50
        with Talk(server) as talk:
            sig = nkeys.sign_nonce(SEED, talk.info["nonce"])
            assert talk.connect(jwt=user_jwt(issued_at=old), sig=sig) == OK
            revoked = main_account(revocations={USER.public: old + 10})
            (tmp_path / f"{kind}.conf").write_text(signed.config(revoked, account_jwt(OTHER)))
            server.process.send_signal(signal.SIGHUP)
            answer = talk.say("")
            assert answer in (VIOLATION, "-ERR 'User Authentication Revoked'")
        assert attempt(server, jwt=user_jwt(issued_at=old), sign=SEED) == VIOLATION
        assert attempt(server, jwt=user_jwt(), sign=SEED) == OK
        assert attempt(server, jwt=user_jwt(signer=OTHER), sign=SEED) == OK


@both
def test_monitoring_names_users_that_are_revoked(kind, tmp_path):
    until = {OTHER.public: 1_700_000_000, "*": 1_600_000_000}
    token = main_account(revocations=until)
    with configured(kind, tmp_path, signed.config(token)) as server:
        assert attempt(server, jwt=user_jwt(), sign=SEED) == OK
        system = system_user(server)
        shown = json.loads(request(system, f"$SYS.REQ.ACCOUNT.{ACCOUNT.public}.INFO"))["data"]
        system.close()
    times = {who: parse_time(when) // 10**9 for who, when in shown["revoked_user"].items()}
    assert times == until


@both
def test_what_monitoring_tells_of_an_account_with_a_jwt(kind, tmp_path):
    token = account_jwt(name="Anna", tags=["one", "two"], claims={"exp": signed.now() + 3})
    with configured(kind, tmp_path, signed.config(token)) as server:
        assert attempt(server, jwt=user_jwt(), sign=SEED) == OK
        system = system_user(server)
        subject = f"$SYS.REQ.ACCOUNT.{ACCOUNT.public}.INFO"
        shown = json.loads(request(system, subject))["data"]
        names = ("jwt", "issuer_key", "name_tag", "tags", "expired")
        assert [shown.get(name) for name in names] == [
            token,
            signed.OPERATOR_SIGNER.public,
            "Anna",
            ["one", "two"],
            False,
        ]
        deadline = time.monotonic() + 10
        while not json.loads(request(system, subject))["data"]["expired"]:
            assert time.monotonic() < deadline
            time.sleep(0.05)
        system.close()
