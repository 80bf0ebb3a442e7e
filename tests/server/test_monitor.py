"""Monitoring: what the endpoints answer about a reactor whose clients are fed by hand, and an engine with
a store of its own.
"""

import json
from random import Random

import pytest

from pelton.core.base.disk import Disk
from pelton.engine.base.settings import Settings as EngineSettings
from pelton.engine.engine import Engine
from pelton.server.identity import Greeting
from pelton.server.monitor import PATHS, ServerState, answer
from pelton.server.monitor.encoding import to_json, uptime
from pelton.server.monitor.expvarz import command_line

from .test_clients import SECOND, World


class Store:
    """JetStream as monitoring sees it: a real engine in a folder."""

    def __init__(self, reactor, router, folder):
        self.folder = str(folder / "jetstream")
        settings = EngineSettings(server_name="name", server_version="2.15.0", max_storage=1 << 30)
        self.engine = Engine(
            reactor,
            Disk(),
            str(folder),
            settings=settings,
            random=Random(1),
            report=lambda text: None,
        )
        self.engine.add("$G", router)
        reactor.turn()
        self.engine.start()

    def accounts(self):
        return list(self.engine.accounts.values())

    def recovering(self):
        return ""

    def configuration(self):
        return {"max_memory": 1 << 20, "max_storage": 1 << 30, "store_dir": self.folder}


class House(World):
    """A world with something to look at."""

    def __init__(self, store=None, **settings):
        super().__init__(**settings)
        self.system = self.accounts.system.router
        self.store = Store(self.reactor, self.router, store) if store is not None else None
        self.warnings = []
        self.facts = ServerState(
            settings=self.settings,
            server_id="NID",
            server_name="name",
            host="127.0.0.1",
            port=4222,
            http_port=8222,
            start_ns=self.clock.now() - 90 * SECOND,
            reactor=self.reactor,
            clients=self.clients,
            accounts=self.accounts.all,
            jetstream=lambda: self.store,
            warn=self.warnings.append,
        )

    def get(self, path, status=200, **query):
        found = answer(self.facts, path, query)
        assert found.status == status, found
        return found

    def json(self, path, **query):
        found = self.get(path, **query)
        assert found.kind == "application/json"
        return json.loads(found.body)

    def request(self, connection, subject, body):
        """The answer to a request to the API."""
        self.say(connection, "SUB in 9\n")
        self.say(connection, f"PUB {subject} in {len(body)}\n{body}\n")
        self.reactor.settle()
        return connection.take().decode()


def busy():
    house = House()
    alice, bob = house.join(), house.join()
    house.say(alice, 'CONNECT {"verbose":false,"name":"alice","lang":"x","version":"1"}\n')
    house.say(bob, 'CONNECT {"verbose":false,"name":"bob","user":"b"}\n')
    house.say(bob, "SUB a.> 1\nSUB b q 2\n")
    house.say(alice, "PUB a.x 3\nabc\nPUB nobody 1\nx\n")
    house.clock.advance(2 * SECOND)
    return house, alice, bob


def test_varz_counts_what_happened():
    house, _, _ = busy()
    found = house.json("/varz")
    expected = {
        "server_id": "NID",
        "connections": 2,
        "total_connections": 2,
        "in_msgs": 2,
        "in_bytes": 4,
        "out_msgs": 1,
        "out_bytes": 3,
        "subscriptions": 2,
        "max_payload": 1048576,
        "port": 4222,
        "http_port": 8222,
        "ping_interval": 120 * SECOND,
        "slow_consumers": 0,
        "jetstream": {},
        "system_account": "$SYS",
        "uptime": "1m32s",
        "start": "1970-01-01T00:15:10Z",
    }
    assert {name: found[name] for name in expected} == expected
    assert found["mem"] > 1_000_000


def test_varz_counts_requests_for_each_path():
    house = House()
    house.get("/varz")
    house.get("/connz")
    assert house.json("/varz")["http_req_stats"] == {"/varz": 2, "/connz": 1}


def test_connz_shows_the_open_ones():
    house, alice, bob = busy()
    found = house.json("/connz")
    assert (found["num_connections"], found["total"], found["limit"]) == (2, 2, 1024)
    first, second = found["connections"]
    assert (first["cid"], second["cid"]) == (alice.id, bob.id)
    assert first["name"] == "alice"
    assert (first["ip"], first["port"], first["in_msgs"], first["out_msgs"]) == (
        "10.0.0.1",
        999,
        2,
        0,
    )
    assert (second["subscriptions"], second["idle"], second["uptime"]) == (2, "2s", "2s")
    assert (first["kind"], first["type"]) == ("Client", "nats")
    assert "authorized_user" not in first
    assert "subscriptions_list" not in first


def test_connz_lists_subscriptions_when_asked():
    house, _, bob = busy()
    row = house.json("/connz", subs="1", cid=str(bob.id))["connections"][0]
    assert row["subscriptions_list"] == ["a.>", "b"]
    row = house.json("/connz", subs="detail", cid=str(bob.id))["connections"][0]
    assert row["subscriptions_list_detail"][1] == {
        "subject": "b",
        "qgroup": "q",
        "sid": "2",
        "msgs": 0,
        "cid": bob.id,
    }


def test_connz_pages_sorts_and_filters():
    house, alice, bob = busy()

    def order(**query):
        return [row["cid"] for row in house.json("/connz", **query)["connections"]]

    assert order(sort="subs") == [bob.id, alice.id]
    assert order(sort="msgs_from") == [alice.id, bob.id]
    assert order(sort="bytes_to") == [bob.id, alice.id]
    assert order(limit="1") == [alice.id]
    assert order(offset="1") == [bob.id]
    assert order(offset="9") == []
    assert order(cid="77") == []
    assert order(user="b") == [bob.id]
    assert order(user="c") == []


def test_connz_remembers_the_closed():
    house, alice, bob = busy()
    house.reactor.turn()
    house.sessions.eof(bob)
    house.clock.advance(7 * SECOND)
    assert [r["cid"] for r in house.json("/connz")["connections"]] == [alice.id]
    (row,) = house.json("/connz", state="closed", subs="detail", sort="stop")["connections"]
    assert (row["cid"], row["reason"], row["name"]) == (bob.id, "Client Closed", "bob")
    assert (row["uptime"], row["idle"], row["subscriptions"]) == ("2s", "2s", 2)
    assert row["stop"].endswith("Z")
    assert row["subscriptions_list_detail"][0] == {
        "account": "$G",
        "account_tag": "$G",
        "subject": "a.>",
        "sid": "1",
        "msgs": 1,
        "cid": bob.id,
    }
    assert len(house.json("/connz", state="any")["connections"]) == 2
    assert house.json("/connz", state="any", cid=str(bob.id))["connections"][0]["stop"]


def test_connz_by_user_account_and_interest():
    house, alice, bob = busy()
    assert house.json("/connz", acc="$G", filter_subject="a.b")["connections"][0]["cid"] == bob.id
    assert house.json("/connz", acc="$G", filter_subject="c")["connections"] == []
    assert house.json("/connz", acc="nobody")["connections"] is None
    (row,) = house.json("/connz", auth="1", cid=str(alice.id))["connections"]
    assert row["name_tag"] == "$G"
    text = house.get("/connz", 400, filter_subject="a").body
    assert text == b"filter by subject only valid with account filtering"


@pytest.mark.parametrize(
    ("path", "query", "text"),
    [
        (
            "/connz",
            {"limit": "x"},
            "Error decoding int for 'limit': strconv.Atoi: parsing \"x\": invalid syntax",
        ),
        (
            "/connz",
            {"offset": "9" * 30},
            "Error decoding int for 'offset': strconv.Atoi: "
            f'parsing "{"9" * 30}": value out of range',
        ),
        (
            "/connz",
            {"cid": "-1"},
            "Error decoding uint64 for 'cid': strconv.ParseUint: parsing \"-1\": invalid syntax",
        ),
        (
            "/connz",
            {"subs": "maybe"},
            "Error decoding boolean for 'subs': strconv.ParseBool: "
            'parsing "maybe": invalid syntax',
        ),
        ("/connz", {"sort": "beauty"}, "invalid sorting option: beauty"),
        ("/connz", {"sort": "stop"}, "sort by stop only valid on closed connections"),
        ("/connz", {"state": "lost"}, "Error decoding state for lost"),
        ("/subsz", {"test": "a.*"}, "invalid test subject, must be valid publish subject: a.*"),
        ("/accountz", {"acc": "zz"}, "Account zz does not exist"),
        (
            "/jsz",
            {"streams": "2"},
            "Error decoding boolean for 'streams': strconv.ParseBool: "
            'parsing "2": invalid syntax',
        ),
    ],
)
def test_a_bad_query_is_told(path, query, text):
    assert House().get(path, 400, **query).body.decode() == text


def test_a_wrong_path_is_not_found():
    for path in ("/nope", "/varzz", "//", "/varz/x", "/varz/"):
        assert House().get(path, 404).body == b"404 page not found\n"


def test_every_path_is_below_the_base_path():
    house = House(http_base_path="/nats")
    assert house.json("/nats/varz")["http_base_path"] == "/nats"
    for path in ("/varz", "/natsvarz", "/"):
        house.get(path, 404)
    text = house.get("/nats").body.decode()
    assert 'href="./nats/varz"' in text


def test_every_path_answers(tmp_path):
    for house in (House(), House(tmp_path, jetstream=True)):
        house.join()
        for path in PATHS:
            house.get(path, 404 if path == "/raftz" else 200)


def test_subsz_counts_and_lists():
    house, _, bob = busy()
    assert house.json("/subsz")["num_subscriptions"] == 2
    found = house.json("/subscriptionsz", subs="1")
    assert [row["subject"] for row in found["subscriptions_list"]] == ["a.>", "b"]
    found = house.json("/subsz", subs="1", test="a.x.y")
    assert [(row["subject"], row["cid"]) for row in found["subscriptions_list"]] == [
        ("a.>", bob.id)
    ]
    assert house.json("/subsz", subs="1", test="a")["total"] == 0


def test_subsz_knows_how_look_ups_do():
    house, alice, _ = busy()
    before = house.json("/subsz")
    for _ in range(10):
        house.say(alice, "PUB a.x 1\n1\n")
    after = house.json("/subsz")
    assert after["num_matches"] == before["num_matches"] + 10
    assert after["cache_hit_rate"] > before["cache_hit_rate"]
    assert (after["num_cache"], after["max_fanout"], after["avg_fanout"]) == (1, 1, 1)
    assert (after["num_inserts"], after["num_removes"]) == (2, 0)


def test_accounts_and_their_traffic():
    house, alice, _ = busy()
    assert house.json("/accountz")["accounts"] == ["$G", "$SYS"]
    found = house.json("/accountz", acc="$G")["account_detail"]
    assert (found["client_connections"], found["jetstream_enabled"]) == (2, False)
    assert {row["to"] for row in found["imports"]} >= {"$SYS.REQ.USER.INFO"}
    for _ in range(2):  # the second time with one of them gone
        (row,) = house.json("/accstatz")["account_statz"]
        assert (row["received"]["msgs"], row["sent"]["msgs"]) == (2, 1)
        house.sessions.eof(alice)
    assert row["conns"] == 1
    assert len(house.json("/accstatz", unused="1")["account_statz"]) == 2


def test_jsz_without_jetstream():
    found = House().json("/jsz")
    assert (found["disabled"], found["streams"]) == (True, 0)
    assert House().get("/jsz", 400, **{"leader-only": "1"}).body.endswith(b": not leader")


def with_streams(tmp_path):
    house = House(tmp_path, jetstream=True)
    alice = house.join()
    house.say(alice, 'CONNECT {"verbose":false,"headers":true}\n')
    for name in ("S", "T"):
        config = {"name": name, "subjects": [name], "max_bytes": 9000}
        house.request(alice, f"$JS.API.STREAM.CREATE.{name}", json.dumps(config))
    config = {"durable_name": "c", "ack_policy": "explicit"}
    body = json.dumps({"stream_name": "S", "config": config})
    house.request(alice, "$JS.API.CONSUMER.DURABLE.CREATE.S.c", body)
    for _ in range(3):
        house.say(alice, "PUB S 5\nhello\n")
    house.request(alice, "$JS.API.CONSUMER.MSG.NEXT.S.c", "1")
    return house, alice


def test_jsz_gives_as_much_as_was_asked_for(tmp_path):
    house, _ = with_streams(tmp_path)
    found = house.json("/jsz")
    assert (found["messages"], found["streams"], found["consumers"]) == (3, 2, 1)
    assert (found["api"]["total"], found["api"]["errors"]) == (3, 0)
    assert "account_details" not in found
    found = house.json("/jsz", accounts="1")["account_details"][0]
    assert (found["name"], found["reserved_memory"]) == ("$G", (1 << 64) - 1)
    assert "stream_detail" not in found
    rows = house.json("/jsz", streams="1")["account_details"][0]["stream_detail"]
    assert [row["name"] for row in rows] == ["S", "T"]
    assert list(rows[0]) == ["name", "created", "cluster", "state"]
    found = house.json("/jsz", consumers="true", config="1")["account_details"][0]
    row = found["stream_detail"][0]
    assert row["config"]["subjects"] == ["S"]
    (consumer,) = row["consumer_detail"]
    assert (consumer["num_pending"], consumer["num_ack_pending"]) == (2, 1)
    assert house.json("/jsz", acc="$G", consumers="1")["account_details"]
    assert "account_details" not in house.json("/jsz", acc="nobody", streams="1")
    assert "account_details" not in house.json("/jsz", accounts="1", offset="1")
    assert house.json("/varz")["jetstream"]["stats"]["storage"] > 0


@pytest.mark.parametrize(
    ("query", "status", "kind", "error"),
    [
        ({}, 200, "", ""),
        ({"js-enabled-only": "1"}, 200, "", ""),
        ({"account": "$G", "stream": "S", "consumer": "c"}, 200, "", ""),
        (
            {"stream": "S"},
            400,
            "BAD_REQUEST",
            '"account" must not be empty when checking stream health',
        ),
        (
            {"consumer": "c"},
            400,
            "BAD_REQUEST",
            '"stream" must not be empty when checking consumer health',
        ),
        ({"account": "x"}, 404, "ACCOUNT", 'JetStream account "x" not found'),
        (
            {"account": "$G", "stream": "z"},
            404,
            "STREAM",
            'JetStream stream "z" not found on account "$G"',
        ),
        (
            {"account": "$G", "stream": "S", "consumer": "z"},
            404,
            "CONSUMER",
            'JetStream consumer "z" not found for stream "S" on account "$G"',
        ),
    ],
)
def test_healthz(query, status, kind, error, tmp_path):
    house, _ = with_streams(tmp_path)
    found = json.loads(house.get("/healthz", status, **query).body)
    assert found.get("error", "") == error
    detailed = json.loads(house.get("/healthz", status, details="1", **query).body)
    if not error:
        assert found == detailed == {"status": "ok"}
        return
    assert found["status"] == ("error" if status == 400 else "unavailable")
    assert detailed["status"] == "error"
    assert (detailed["errors"][0]["type"], detailed["errors"][0]["error"]) == (kind, error)
    assert len(house.warnings) == 2


def test_healthz_while_jetstream_has_not_come_up():
    house = House(jetstream=True)
    found = json.loads(house.get("/healthz", 503).body)
    assert found == {"status": "unavailable", "error": "JetStream not enabled"}
    house.get("/healthz", **{"js-server-only": "1"})


def test_the_first_page_links_all_others():
    text = House().get("/").body.decode()
    for path in ("/varz", "/connz", "/subsz", "/jsz", "/healthz", "/metrics"):
        assert f'href=".{path}"' in text


def test_jsonp():
    found = House().get("/healthz", callback="fn")
    assert found.body == b'{"status":"ok"}'
    found = House().get("/varz", callback="a.fn")
    assert found.kind == "application/javascript"
    assert found.body.startswith(b"a.fn({")
    assert House().get("/varz", callback="alert(1)//").kind == "application/json"


def test_a_command_line_keeps_its_secrets():
    words = ["x", "--pass", "s3cret", "-p", "4222", "--auth=t0ken", "--user", "me"]
    told = command_line(words)
    assert told == [
        "x",
        "--pass",
        "[hidden]",
        "-p",
        "4222",
        "--auth=[hidden]",
        "--user",
        "[hidden]",
    ]


def test_json_as_go_writes_it():
    assert to_json({"a": "<&>", "b": []}, None) == '{"a":"\\u003c\\u0026\\u003e","b":[]}'


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0, "0s"), (61, "1m1s"), (3600, "1h0m0s"), (90_061, "1d1h1m1s"), (31_536_000, "1y0d0h0m0s")],
)
def test_uptimes(seconds, text):
    assert uptime(seconds * SECOND) == text


def test_monitoring_follows_a_change_of_settings():
    house = House()
    house.settings.max_payload = 7
    Greeting(house.settings, "NID", "name", "h", 1)
    assert house.json("/varz")["max_payload"] == 7
