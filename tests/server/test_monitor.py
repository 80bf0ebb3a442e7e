"""Monitoring: what the endpoints answer about a hub whose clients are fed by hand."""

import json
import re

import pytest

from penstock.server.identity import Greeting
from penstock.server.monitor import Facts, answer

from .test_clients import SECOND, World

JETSTREAM = {
    "memory": 1,
    "storage": 2,
    "reserved_memory": 3,
    "reserved_storage": 4,
    "accounts": 1,
    "ha_assets": 0,
    "api": {"level": 4, "total": 9, "errors": 1},
    "config": {"store_dir": "/x"},
    "streams": 1,
    "consumers": 1,
    "messages": 5,
    "bytes": 2,
}
STREAM = {
    "name": 'a"b',
    "state": {"messages": 5, "bytes": 2, "first_seq": 1, "last_seq": 5, "consumer_count": 1},
    "consumer_detail": [
        {
            "name": "c",
            "num_pending": 1,
            "num_ack_pending": 2,
            "num_redelivered": 3,
            "num_waiting": 4,
        }
    ],
}


class House(World):
    """A world with something to look at."""

    def __init__(self, jetstream=None, **settings):
        super().__init__(**settings)
        self.asked = []

        def report(*wanted):
            self.asked.append(wanted)
            return jetstream and {**jetstream, "detail": [STREAM] if wanted[0] else None}

        self.facts = Facts(
            settings=self.settings,
            server_id="NID",
            server_name="name",
            host="127.0.0.1",
            port=4222,
            http_port=8222,
            start_ns=self.clock.now() - 90 * SECOND,
            hub=self.hub,
            clients=self.clients,
            jetstream=report,
            stream_state=lambda stream, consumer: "" if stream == "a" else f"no {stream}{consumer}",
        )

    def get(self, path, status=200, **query):
        found = answer(self.facts, path, query)
        assert found.status == status, found
        return found

    def json(self, path, **query):
        found = self.get(path, **query)
        assert found.kind == "application/json"
        return json.loads(found.body)


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
    assert "_start" not in first
    assert "subscriptions_list" not in first


def test_connz_lists_subscriptions_when_asked():
    house, _, bob = busy()
    row = house.json("/connz", subs="1", cid=str(bob.id))["connections"][0]
    assert row["subscriptions_list"] == ["a.>", "b"]
    row = house.json("/connz", subs="detail", cid=str(bob.id))["connections"][0]
    assert row["subscriptions_list_detail"][1] == {
        "account": "$G",
        "account_tag": "$G",
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
    assert order(user="b") == []


def test_connz_remembers_the_closed():
    house, alice, bob = busy()
    house.sessions.eof(alice)
    assert [r["cid"] for r in house.json("/connz")["connections"]] == [bob.id]
    (row,) = house.json("/connz", state="closed")["connections"]
    assert (row["cid"], row["reason"], row["name"]) == (alice.id, "Client Closed", "alice")
    assert row["stop"].endswith("Z")
    assert len(house.json("/connz", state="any", sort="stop")["connections"]) == 2


@pytest.mark.parametrize(
    ("path", "query", "text"),
    [
        ("/connz", {"limit": "x"}, "Error decoding int for 'limit'"),
        ("/connz", {"offset": "9" * 30}, "Error decoding int for 'offset'"),
        ("/connz", {"subs": "maybe"}, "Error decoding boolean for 'subs'"),
        ("/connz", {"sort": "beauty"}, "invalid sorting option: beauty"),
        ("/connz", {"sort": "stop"}, "only valid on closed connections"),
        ("/connz", {"state": "lost"}, "Error decoding state"),
        ("/jsz", {"streams": "2"}, "Error decoding boolean for 'streams'"),
        ("/subsz", {"subs": "2"}, "Error decoding boolean"),
    ],
)
def test_a_bad_query_is_told(path, query, text):
    assert text in House().get(path, 400, **query).body.decode()


def test_a_wrong_path_is_not_found():
    for path in ("/nope", "/varzz", "//", "/varz/x"):
        House().get(path, 404)
    House().get("/varz/")


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


def test_jsz_without_jetstream():
    assert House().json("/jsz")["disabled"] is True


def test_jsz_gives_as_much_as_was_asked_for():
    house = House(JETSTREAM)
    found = house.json("/jsz")
    assert (found["messages"], found["streams"], found["api"]["total"]) == (5, 1, 9)
    assert "account_details" not in found
    found = house.json("/jsz", accounts="1")
    assert found["account_details"][0]["name"] == "$G"
    assert "stream_detail" not in found["account_details"][0]
    found = house.json("/jsz", consumers="true", config="1")
    assert found["account_details"][0]["stream_detail"][0]["name"] == 'a"b'
    assert house.asked == [(False, False, False), (False, False, False), (True, True, True)]
    assert house.json("/varz")["jetstream"]["stats"]["storage"] == 2


@pytest.mark.parametrize(
    ("query", "status", "error"),
    [
        ({}, 200, None),
        ({"stream": "a"}, 200, None),
        ({"stream": "z"}, 404, "no z"),
        ({"stream": "z", "consumer": "c"}, 404, "no zc"),
        ({"consumer": "c"}, 400, "stream must not be empty when checking consumer health"),
        ({"account": "x"}, 404, 'JetStream account "x" not found'),
        ({"js-enabled-only": "1"}, 503, "JetStream not enabled"),
    ],
)
def test_healthz(query, status, error):
    found = json.loads(House().get("/healthz", status, **query).body)
    assert found.get("error") == error
    assert found["status"] == ("ok" if status == 200 else "unavailable")


def test_metrics_are_prometheus_text():
    house, _, _ = busy()
    house.facts.jetstream = lambda *wanted: {**JETSTREAM, "detail": [STREAM]}
    text = house.get("/metrics").body.decode()
    pattern = r"(# (HELP|TYPE) [a-z_]+ .+|[a-z_]+(\{([a-z]+=\"(\\.|[^\"\\])*\",?)+\})? [0-9.e+]+)"
    for line in text.splitlines():
        assert re.fullmatch(pattern, line), line
    assert "penstock_in_msgs 2\n" in text
    assert 'penstock_stream_messages{stream="a\\"b"} 5\n' in text
    assert 'penstock_consumer_num_pending{stream="a\\"b",consumer="c"} 1\n' in text


def test_the_first_page_links_all_others():
    text = House().get("/").body.decode()
    for path in ("/varz", "/connz", "/subsz", "/jsz", "/healthz", "/metrics"):
        assert f'href=".{path}"' in text


def test_jsonp():
    found = House().get("/healthz", callback="fn")
    assert found.body == b'{"status":"ok"}'
    found = House().get("/varz", callback="fn")
    assert found.kind == "application/javascript"
    assert found.body.startswith(b"fn({")


def test_monitoring_follows_a_change_of_settings():
    house = House()
    house.settings.max_payload = 7
    Greeting(house.settings, "NID", "name", "h", 1)
    assert house.json("/varz")["max_payload"] == 7
