"""What clients can bring into the log: names, subjects and broken operations are shown, never obeyed,
and no line has a password.
"""

import json
import re

import pytest

from tests.server.process import Wire, running

CONFIG = """
accounts {
  SHOP {
    users: [{user: bob, password: "pass-of-bob", permissions: {publish: "x", subscribe: "x"}}]
  }
}
"""
NAME = "n\x1b[2J\x07\x9b31m\u202e"
SHOWN = r"n\x1b[2J\a\u009b31m\u202e"
HELLO = {"user": "bob", "pass": "pass-of-bob", "verbose": False}
LABEL = r'127\.0\.0\.1:\d+ - cid:\d+ - "v1:py:billing" - "SHOP/user:bob" - '


@pytest.fixture
def config(tmp_path):
    path = tmp_path / "server.conf"
    path.write_text(CONFIG)
    return path


def lines_of(server):
    """What the log has, each line printable."""
    server.stop()
    lines = server.text.removesuffix("\n").split("\n")
    assert all(line.isprintable() for line in lines)
    return lines


def test_names_of_clients_and_users_are_shown_not_obeyed(config):
    with running("-c", str(config), "-DV") as server:
        port = server.port()
        with Wire(port, hello=json.dumps(HELLO | {"name": NAME})) as wire:
            wire.ping()
        with Wire(port, hello=json.dumps({"user": NAME, "pass": "typed-wrong"})) as wire:
            assert b"Authorization Violation" in wire.rest()
        with Wire(port, hello=json.dumps({"auth_token": "typed", "user": "typed"})) as wire:
            wire.rest()
        server.wait_for("Token")
        text = "\n".join(lines_of(server))
    assert f'- "{SHOWN}" - "SHOP/user:bob" - ' in text
    assert f'authentication error - User "{SHOWN}"' in text
    assert "pass-of-bob" not in text
    assert "typed" not in text


def test_a_violation_names_connection_client_and_user(config):
    hello = json.dumps(HELLO | {"name": "billing", "lang": "py", "version": "1"})
    with running("-c", str(config)) as server:
        with Wire(server.port(), hello=hello) as wire:
            wire.send("PUB y\x1b 0\r\n\r\nSUB z q 1\r\nPUB x $JS.ACK.a 0\r\n\r\n")
            wire.ping()
        text = "\n".join(lines_of(server))
    assert re.search(LABEL + r'Permissions Violation for Publish to "y\\x1b"', text)
    assert re.search(LABEL + r'Permissions Violation for Subscription to "z" using queue "q"', text)
    assert re.search(LABEL + r'Permissions Violation for Publish with Reply of "\$JS.ACK.a"', text)


BROKEN = {
    'NONSENSE\x1b[2J "hush"\r\n': r'unknown operation .*: "NONSENSE\\x1b"',
    'CONNEC{"pass":"hush"}\r\n': r'unknown operation .*: "CONNEC"',
    "GET /hush HTTP/1.1\r\n\r\n": r'unknown operation .*: "GET"',
    "PUB x y z 1\r\n": r'arguments that can not be: "PUB x y z 1"',
    "PUB x 99999999\r\nhush": r'maximum payload of 1048576 exceeded: "PUB x 99999999"',
    "PUB x 4\r\nhushhush\r\n": r'payload without its end: "PUB"',
    f"SUB {'h' * 5000} hush\r\n": 'maximum control line of 4096 exceeded: "SUB"',
    'CONNECT {"pass":"hush\r\n': "CONNECT is not the expected JSON",
    "INFO {hush\r\n": "INFO is not the expected JSON",
}


@pytest.mark.parametrize("sent", BROKEN)
def test_what_can_not_be_read_is_logged_without_what_it_may_hide(config, sent):
    with running("-c", str(config)) as server:
        with Wire(server.port(), hello=json.dumps(HELLO)) as wire:
            wire.ping()
            wire.send(sent)
            wire.rest()
        server.wait_for(r'\[ERR\] 127\.0\.0\.1:\d+ - cid:\d+ - "SHOP/user:bob" - parse error: ')
        text = "\n".join(lines_of(server))
    assert re.search(f"parse error: .*{BROKEN[sent]}|parse error: {BROKEN[sent]}", text)
    assert "hush" not in text


def test_an_operation_before_connect_is_logged(config):
    with running("-c", str(config)) as server:
        with Wire(server.port(), hello=None) as wire:
            wire.send("PUB x 0\r\n\r\n")
            assert b"Authorization Violation" in wire.rest()
        server.wait_for(r"cid:\d+ - authentication error: no CONNECT before the first operation")


HASH = "$2a$04$mCzQUr5c4QP5HFHLVKTDBuMGAEC0Ll6fd7hvmlvpUfmE9gvfxpWXC"
WARNING = "Plaintext passwords detected"


@pytest.mark.parametrize(
    ("config", "warned"),
    [
        ("authorization {user: a, password: secret-word}", True),
        ("authorization {users: [{user: a, password: secret-word}]}", True),
        ("accounts {A {users: [{user: a, password: secret-word}]}}", True),
        ("leafnodes {port: -1, authorization {user: a, password: secret-word}}", True),
        ("leafnodes {port: -1, authorization {users: [{user: a, password: secret-word}]}}", True),
        (
            "websocket {port: -1, no_tls: true, authorization {user: a, password: secret-word}}",
            True,
        ),
        (f'authorization {{user: a, password: "{HASH}"}}', False),
        (f'accounts {{A {{users: [{{user: a, password: "{HASH}"}}]}}}}', False),
        ("authorization {users: [{user: a}, {user: b}]}", False),
        ("debug: false", False),
    ],
)
def test_plain_passwords_are_warned_about_and_not_shown(tmp_path, config, warned):
    path = tmp_path / "server.conf"
    path.write_text(config)
    with running("-c", str(path)) as server:
        assert (WARNING in "\n".join(lines_of(server))) is warned
    assert "secret-word" not in server.text


def test_plain_passwords_of_options_are_warned_about():
    with running("--user", "a", "--pass", "secret-word") as server:
        assert WARNING in "\n".join(lines_of(server))
    assert "secret-word" not in server.text
