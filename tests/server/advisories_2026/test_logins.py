"""Logins that should have been refused, and those that should not outlive a change."""

from __future__ import annotations

import json
import ssl

import pytest
from cryptography.x509.oid import NameOID

from pelton import nkeys
from tests.certificates import Authority
from tests.server import configured as with_ports
from tests.server.auth import signed
from tests.server.auth.live import KINDS, OK, VIOLATION, Talk, attempt, configured
from tests.server.auth.signed import ACCOUNT, SYSTEM_USER, USER, account_jwt, user_jwt
from tests.server.auth.test_live_operator import request, system_user
from tests.server.configured import line_of, rest_of

both = pytest.mark.parametrize("kind", KINDS)

CONNECT = b'CONNECT {"verbose":false}\r\nPING\r\n'
CN, ORG, UNIT, DC = (
    NameOID.COMMON_NAME,
    NameOID.ORGANIZATION_NAME,
    NameOID.ORGANIZATIONAL_UNIT_NAME,
    NameOID.DOMAIN_COMPONENT,
)


def said(connection):
    """What the server answers first that is no greeting."""
    while (line := line_of(connection)).startswith((b"INFO", b"+OK")):
        pass
    return line


@both
@pytest.mark.parametrize(
    ("user", "subject", "admitted"),
    [
        ("CN=Alice,O=NATS,OU=Users", [(CN, "Alice"), (ORG, "NATS"), (UNIT, "Users")], True),
        ("CN=Alice,O=NATS,OU=Users", [(UNIT, "Users"), (ORG, "NATS"), (CN, "Alice")], True),
        # as many parts, one of them twice
        ("CN=Alice,O=NATS,OU=Users", [(CN, "Alice"), (CN, "Alice"), (ORG, "NATS")], False),
        ("CN=Alice,O=NATS,OU=Users", [(CN, "Alice"), (ORG, "NATS"), (ORG, "NATS")], False),
        ("CN=Alice,CN=Alice,O=NATS", [(CN, "Alice"), (ORG, "NATS"), (UNIT, "Users")], False),
        # one part less, one more
        ("CN=Alice,O=NATS,OU=Users", [(CN, "Alice"), (ORG, "NATS")], False),
        ("CN=Alice,O=NATS", [(CN, "Alice"), (ORG, "NATS"), (UNIT, "Users")], False),
        # parts in the text of a part
        ("CN=Alice,O=NATS", [(CN, "Alice,O=NATS")], False),
        ("CN=Alice,O=NATS", [(CN, "Alice+O=NATS")], False),
        ("CN=Alice,O=NATS", [(CN, "Alice\\,O=NATS")], False),
        ("CN=Alice", [(CN, "alice")], False),
        ("CN=Alice", [(CN, " Alice")], False),
        ("CN=*", [(CN, "Alice")], False),
        ("CN=Alice,DC=example,DC=com", [(DC, "com"), (DC, "other"), (CN, "Alice")], False),
        ("CN=Alice,DC=example,DC=com", [(DC, "com"), (DC, "com"), (CN, "Alice")], False),
    ],
)
def test_a_subject_is_matched_part_by_part(kind, user, subject, admitted, tmp_path):
    """2026-13 (CVE-2026-33248, d9271c244)."""
    authority = Authority(tmp_path)
    server_certificate, shown = authority.server(), authority.client("c", subject=subject)
    text = f"""
        listen: 127.0.0.1:@port
        authorization {{ users: [ {{ user: {json.dumps(user)} }} ] }}
        tls {{
            cert_file: "{server_certificate.cert_file}", key_file: "{server_certificate.key_file}"
            ca_file: "{authority.ca_file}", verify_and_map: true
        }}
    """
    context = ssl.create_default_context(cafile=authority.ca_file)
    context.load_cert_chain(shown.cert_file, shown.key_file)
    with with_ports.configured(kind, text) as server:
        plain = server.connect()
        line_of(plain)
        with context.wrap_socket(plain, server_hostname="localhost") as connection:
            connection.sendall(CONNECT)
            wanted = b"PONG\r\n" if admitted else b"-ERR 'Authorization Violation'\r\n"
            assert said(connection) == wanted


@both
@pytest.mark.parametrize("listener", ["leaf", "ws"])
def test_a_user_with_a_certificate_does_not_log_in_by_name_elsewhere(kind, listener, tmp_path):
    """ccd898ea8: users of a certificate have no password."""
    authority = Authority(tmp_path)
    own = authority.server()
    text = f"""
        listen: 127.0.0.1:@port
        authorization {{ users: [ {{ user: "ann@example.com" }}, {{ user: bob, password: x }} ] }}
        tls {{
            cert_file: "{own.cert_file}", key_file: "{own.key_file}"
            ca_file: "{authority.ca_file}", verify_and_map: true
        }}
        leafnodes {{ listen: 127.0.0.1:@leaf }}
        websocket {{ listen: 127.0.0.1:@ws, no_tls: true }}
    """
    with with_ports.configured(kind, text) as server:
        for user, wanted in (("ann@example.com", b"-ERR"), ("bob", b"PONG")):
            fields = {"user": user, "pass": "x" if user == "bob" else "", "name": user}
            line = b"CONNECT %b\r\nPING\r\n" % json.dumps(fields).encode()
            connection = server.connect(listener)
            if listener == "ws":
                connection.sendall(UPGRADE)
                while line_of(connection) != b"\r\n":
                    pass
                line = bytes([0x82, 0x80 | len(line)]) + bytes(4) + line
            else:
                line_of(connection)
            connection.sendall(line)
            got = b""
            while wanted not in got and (data := connection.recv(65536)):
                got += data
            assert wanted in got, got
            connection.close()


UPGRADE = (
    b"GET / HTTP/1.1\r\nHost: localhost\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
    b"Sec-WebSocket-Key: MDEyMzQ1Njc4OWFiY2RlZg==\r\nSec-WebSocket-Version: 13\r\n\r\n"
)


@both
@pytest.mark.parametrize(
    "restriction", ["allowed_connection_types: [WEBSOCKET]", "proxy_required: true"]
)
@pytest.mark.parametrize("first", ["PING\n", "SUB a 1\nPING\n", "PUB a 0\n\nPING\n"])
def test_the_user_of_those_without_credentials_keeps_its_restrictions(
    kind, restriction, first, tmp_path
):
    """2026-16 (46d982dff): also for a client that sends no CONNECT."""
    text = f"authorization {{ users: [ {{ user: g, {restriction} }} ] }}\nno_auth_user: g\n"
    with configured(kind, tmp_path, text) as server:
        with Talk(server) as talk:
            assert talk.say(first).startswith("-ERR 'Auth")
        assert attempt(server) != OK


@both
def test_the_user_of_those_without_credentials_is_not_for_leaf_nodes(kind):
    """2026-16 (8b8e1ad4c): a leaf node has to send CONNECT."""
    text = """
        listen: 127.0.0.1:@port
        accounts { A { users: [ { user: g, password: x } ] } }
        no_auth_user: g
        leafnodes { listen: 127.0.0.1:@leaf }
    """
    for first in (b"PING\r\n", b"LS+ >\r\n", b"LMSG a 0\r\n\r\n", b"PONG\r\n", b"SUB a 1\r\n"):
        with with_ports.configured(kind, text) as server:
            leaf, client = server.connect("leaf"), server.connect()
            line_of(leaf)
            leaf.sendall(first)
            assert b"LS+" not in rest_of(leaf)
            leaf.close()
            line_of(client)
            client.sendall(CONNECT)
            assert said(client) == b"PONG\r\n"
            client.close()


@both
@pytest.mark.parametrize("restriction", ["LEAFNODE", "LEAFNODE_WS"])
def test_a_leaf_nodes_user_is_restricted_to_its_connection_types(kind, restriction):
    """A sibling of 46d982dff."""
    text = f"""
        listen: 127.0.0.1:@port
        authorization {{
            users: [ {{ user: u, password: x, allowed_connection_types: [{restriction}] }} ]
        }}
        leafnodes {{ listen: 127.0.0.1:@leaf }}
        websocket {{ listen: 127.0.0.1:@ws, no_tls: true }}
    """
    line = b'CONNECT {"user":"u","pass":"x","name":"leaf","cluster":"c"}\r\n'
    with with_ports.configured(kind, text) as server:
        for port, kind_there in (("leaf", "LEAFNODE"), ("ws", "LEAFNODE_WS")):
            connection = server.connect(port)
            data = line
            if port == "ws":
                connection.sendall(UPGRADE.replace(b"/ HTTP", b"/leafnode HTTP"))
                while line_of(connection) != b"\r\n":
                    pass
                data = bytes([0x82, 0x80 | len(line)]) + bytes(4) + line
            connection.sendall(data)
            got = b""
            while b"LS+" not in got and (more := connection.recv(65536)):
                got += more
            assert (b"LS+" in got) is (kind_there == restriction), got
            connection.close()


BIG = [1 << 31, (1 << 32) + 1, (1 << 63) - 1]


@both
@pytest.mark.parametrize("limit", BIG)
def test_limits_of_a_jwt_beyond_32_bits_are_large(kind, limit, tmp_path):
    """daeabd2fc: nats-server took them for negative or small ones."""
    names = ("subs", "payload", "conn", "leaf")
    account = account_jwt(limits=dict.fromkeys(names, limit))
    token = user_jwt(subs=limit, payload=limit, data=-1)
    with configured(kind, tmp_path, signed.config(account)) as server:
        with Talk(server) as talk:
            sig = nkeys.sign_nonce(USER.seed, talk.info["nonce"])
            assert talk.connect(jwt=token, sig=sig) == OK
            assert talk.say("SUB a 1\nPUB a 5\nhello\nPING\n") == "MSG a 1 5"
        assert attempt(server, jwt=token, sign=USER.seed) == OK


def in_account(server, token, seed):
    talk = Talk(server)
    assert talk.connect(jwt=token, sig=nkeys.sign_nonce(seed, talk.info["nonce"])) == OK
    return talk


@both
def test_new_default_permissions_of_an_account_reach_its_users(kind, tmp_path):
    """26b1e7ad9."""

    def account(subject):
        rules = {"pub": {"allow": [subject]}, "sub": {"allow": [subject]}}
        return account_jwt(default_permissions=rules)

    with configured(kind, tmp_path, signed.config(account("foo"))) as server:
        system = system_user(server)
        talk = in_account(server, user_jwt(), USER.seed)
        assert talk.say("SUB foo 1\nPUB foo 0\n\nPING\n") == "MSG foo 1 0"
        assert talk.line() == ""
        assert talk.line() == OK
        subject = f"$SYS.REQ.ACCOUNT.{ACCOUNT.public}.CLAIMS.UPDATE"
        assert json.loads(request(system, subject, account("bar")))["data"]["code"] == 200
        lost = '-ERR \'Permissions Violation for Subscription to "foo" (sid "1")\''
        assert talk.say("") == lost
        assert talk.say("PUB foo 0\n\n") == "-ERR 'Permissions Violation for Publish to \"foo\"'"
        assert talk.say("SUB bar 2\nPUB bar 0\n\nPING\n") == "MSG bar 2 0"
        talk.close()
        system.close()


@both
def test_an_account_that_has_no_callout_any_more_asks_no_service(kind, tmp_path):
    """c16afd1db."""
    allowed = {"auth_users": [SYSTEM_USER.public], "allowed_accounts": ["*"]}
    text = signed.config(account_jwt(authorization=allowed), extra="authorization { timeout: 1s }")
    with configured(kind, tmp_path, text) as server:
        system = system_user(server)
        assert attempt(server, jwt=user_jwt(), sign=USER.seed) == VIOLATION  # nobody answers
        subject = f"$SYS.REQ.ACCOUNT.{ACCOUNT.public}.CLAIMS.UPDATE"
        assert json.loads(request(system, subject, account_jwt()))["data"]["code"] == 200
        assert attempt(server, jwt=user_jwt(), sign=USER.seed) == OK
        system.close()


def test_times_across_midnight():
    """cfa988ab3: nats-server refused after midnight; tests/server/auth/test_validity.py has a model."""
    from tests.server.auth.test_validity import at, until

    night = ("22:00:00", "06:00:00")
    assert until(23, night) == at(6, day=16)
    assert until(5, night) == at(6)
    for hour in (7, 12, 21):
        assert until(hour, night) is None
    assert until(23, ("09:00:00", "17:00:00"), night) == at(6, day=16)


def test_the_names_in_a_certificate_need_no_order(tmp_path):
    """2026-13, on the function alone: each part counts once."""
    from pelton.server.transports.tls import same_subject

    shown = Authority(tmp_path).client("c", subject=[(ORG, "N"), (CN, "A")]).certificate
    assert same_subject(shown, "CN=A,O=N")
    assert same_subject(shown, "O=N,CN=A")
    for other in ("CN=A", "CN=A,CN=A", "O=N,O=N", "CN=A+O=N", "CN=A,O=N,O=N", ""):
        assert not same_subject(shown, other)
