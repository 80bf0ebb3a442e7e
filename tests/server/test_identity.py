"""The server's id and the INFO line."""

import base64
import json
from binascii import crc_hqx

from hypothesis import given
from hypothesis import strategies as st

from pelton.server.identity import Greeting, new_server_id
from pelton.server.settings import Settings


@given(st.binary(min_size=32, max_size=32))
def test_a_server_id_is_a_public_nkey(entropy):
    found = new_server_id(entropy)
    raw = base64.b32decode(found)
    assert (len(found), found[0]) == (56, "N")
    assert raw[1:33] == entropy
    assert int.from_bytes(raw[33:], "little") == crc_hqx(raw[:33], 0)


def info(settings, client_id=7, client_ip="127.0.0.1", **more):
    greeting = Greeting(settings, "NID", "name", "127.0.0.1", 4222)
    if more:
        greeting.refresh(settings, **more)
    line = greeting.line(client_id, client_ip)
    assert line.startswith(b"INFO {")
    assert line.endswith(b"} \r\n")
    return json.loads(line[5:])


def test_info_says_what_clients_need():
    found = info(Settings())
    assert found.pop("go").startswith("python3.")
    assert found == {
        "server_id": "NID",
        "server_name": "name",
        "version": "2.15.0",
        "proto": 1,
        "host": "127.0.0.1",
        "port": 4222,
        "headers": True,
        "max_payload": 1048576,
        "client_id": 7,
        "client_ip": "127.0.0.1",
        "api_lvl": 5,
    }


def test_info_has_the_optional_fields_only_when_they_say_something():
    found = info(Settings(jetstream=True, domain="hub", token="t", max_payload=5))
    assert found["jetstream"] is True
    assert found["domain"] == "hub"
    assert found["auth_required"] is True
    assert found["max_payload"] == 5
    assert "ldm" not in found
    assert info(Settings(domain="hub"), lame_duck=True)["ldm"] is True
    assert "domain" not in info(Settings(domain="hub"))


def test_info_quotes_names():
    greeting = Greeting(Settings(), "NID", 'a"b\\ü', "h", 1)
    assert json.loads(greeting.line(1, "::1")[5:])["server_name"] == 'a"b\\ü'
