"""Remotes in the configuration file."""

import pytest

from pelton.server.config import read_config
from pelton.server.errors import ConfigError
from pelton.server.origin_servers import without_secret
from pelton.server.settings import OriginServer
from pelton.server.settings.tls import Tls


def test_remotes() -> None:
    text = """
    jetstream {
      remotes {
        hub { url: "nats://hub:4222", user: u, password: $SECRET }
        lab { urls: ["tls://a:1", "b"], token: t, ca_file: "/x.pem" }
      }
    }
    """
    settings, warnings = read_config(text, environ={"SECRET": "pw"})
    assert not warnings
    assert settings.jetstream
    assert settings.remotes == [
        OriginServer("hub", ["nats://hub:4222"], user="u", password="pw"),
        OriginServer("lab", ["tls://a:1", "nats://b"], token="t", tls=Tls(ca_file="/x.pem")),
    ]
    assert "pw" not in repr(settings.remotes)


@pytest.mark.parametrize(
    ("inside", "what"),
    [
        ("hub { }", 'remote "hub" needs a url'),
        ("hub: nats://hub", "expected a map {url: nats://host}"),
        ('"a b" { url: x }', "is not a valid name of a remote"),
        ("a.b { url: x }", "is not a valid name of a remote"),
        ("hub { url: http://x }", "expected nats://host:port or tls://host:port"),
        ("hub { url: nats://x:0 }", "port 0"),
        ("hub { url: nats://x:seven }", "url: "),
        ("hub { url: x, speed: 3 }", 'unknown field "speed"'),
        ("hub { urls: x }", 'unknown field "urls"'),
    ],
)
def test_mistakes(inside: str, what: str) -> None:
    with pytest.raises(ConfigError) as caught:
        read_config(f"jetstream {{ remotes {{ {inside} }} }}")
    assert what in str(caught.value)


def test_remotes_are_a_map() -> None:
    with pytest.raises(ConfigError, match="expected a map of names to servers"):
        read_config("jetstream { remotes: [a] }")


def test_a_log_line_shows_no_secret() -> None:
    assert without_secret("nats://me:secret@hub:4222") == "nats://hub:4222"
