"""How many connections an account may have: whom the limit counts, whom it refuses, and who goes when
it is lowered; on our server and on nats-server.
"""

from __future__ import annotations

import json
import signal

import pytest

from tests.server.auth.live import KINDS, OK, VIOLATION, Talk, attempt, configured
from tests.server.leafs import wait_for

both = pytest.mark.parametrize("kind", KINDS)
FULL = "-ERR 'maximum account active connections exceeded'"
CONFIG = """
accounts {
    A { users: [{user: a, password: x}], limits: {max_connections: 1} }
    B { users: [{user: b, password: x}] }
    SYS { users: [{user: s, password: x}] }
}
system_account: SYS
no_auth_user: a
"""


def login(user):
    return {"user": user, "pass": "x"}


@both
def test_a_full_account_of_guests_refuses_nobody_else(kind, tmp_path):
    with configured(kind, tmp_path, CONFIG) as server, Talk(server) as guest:
        assert guest.connect() == OK
        assert attempt(server) == FULL
        assert attempt(server, **login("a")) == FULL
        assert attempt(server, **login("b")) == OK
        assert attempt(server, **login("s")) == OK
        with Talk(server) as talk:
            assert talk.say("SUB x 1\nPING\n") == FULL
        assert guest.say("PING\n") == OK


@both
def test_who_has_said_nothing_is_in_no_account(kind, tmp_path):
    with configured(kind, tmp_path, CONFIG) as server:
        silent = [Talk(server) for _ in range(3)]
        assert attempt(server, user="b", **{"pass": "y"}) == VIOLATION
        with Talk(server) as guest:
            assert guest.say("SUB x 1\nPUB x 1\ny\n") == "MSG x 1 1"
            assert guest.line() == "y"
            assert silent[0].connect() == FULL
        with Talk(server) as system:
            assert system.connect(**login("s")) == OK
            request = json.dumps({"acc": "A"})
            system.say(f"SUB r 1\nPUB $SYS.REQ.ACCOUNT.A.CONNZ r {len(request)}\n{request}\nPING\n")
            while not (line := system.line()).startswith("{"):
                pass
            assert json.loads(line)["data"]["num_connections"] == 0
        for talk in silent:
            talk.close()


@both
def test_one_login_is_one_event_and_a_failed_one_is_none(kind, tmp_path):
    with configured(kind, tmp_path, CONFIG) as server, Talk(server) as system:
        assert system.connect(**login("s")) == OK
        assert system.say("SUB $SYS.ACCOUNT.*.CONNECT 1\nPING\n") == OK
        assert attempt(server, user="b", **{"pass": "y"}) == VIOLATION
        assert attempt(server, **login("b")) == OK
        assert attempt(server) == OK
        with Talk(server) as talk:
            assert talk.say("PING\n") == OK
        assert attempt(server, **login("s")) == OK
        heard = []
        while len(heard) < 4:
            line = system.line()
            if line.startswith("{"):
                heard.append(json.loads(line)["client"]["acc"])
        assert sorted(heard) == ["A", "A", "B", "SYS"]


def lowered(server, path, most):
    path.write_text(path.read_text().replace("max_connections: 4", f"max_connections: {most}"))
    server.process.send_signal(signal.SIGHUP)


@both
@pytest.mark.parametrize("most", [3, 1, 0])
def test_connections_above_a_lowered_limit_are_closed(kind, tmp_path, most):
    config = CONFIG.replace("max_connections: 1", "max_connections: 4")
    with configured(kind, tmp_path, config) as server:
        talks = [Talk(server) for _ in range(4)]
        others = [Talk(server), Talk(server)]
        assert [talk.connect(**login("a")) for talk in talks] == [OK] * 4
        assert [talk.connect(**login("b")) for talk in others] == [OK] * 2
        lowered(server, tmp_path / f"{kind}.conf", most)
        wait_for(lambda: "Reloaded server configuration" in server.log_path.read_text(), "reload")
        said = [talk.say("PING\n") for talk in talks]
        assert sorted(said) == [FULL] * (4 - most) + [OK] * most
        if kind == "pelton":  # nats-server closes any of them
            assert said == [OK] * most + [FULL] * (4 - most)
        assert [talk.say("PING\n") for talk in others] == [OK] * 2
        for talk in talks + others:
            talk.close()
