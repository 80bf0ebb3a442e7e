"""`default_js_domain`: JetStream of a domain that is reached elsewhere, without saying so."""

import pytest

from pelton.server.config import read_config
from pelton.server.errors import ConfigError

from .process import Wire, running


def test_requests_and_buckets_go_to_the_domain(tmp_path):
    path = tmp_path / "x.conf"
    path.write_text('default_js_domain { "$G": hub }\n')
    with running("-c", str(path)) as server, Wire(server.port()) as wire:
        wire.send("SUB $JS.hub.> 1\r\n")
        for subject, heard in (
            ("$JS.API.INFO", "$JS.hub.API.INFO"),
            ("$JS.API.STREAM.INFO.S", "$JS.hub.API.STREAM.INFO.S"),
            ("$KV.b.key", "$JS.hub.API.$KV.b.key"),
        ):
            wire.send(f"PUB {subject} 1\r\nx\r\n")
            assert wire.line() == f"MSG {heard} 1 1"
            wire.line()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("default_js_domain { X: hub }", "references non existing account"),
        ('default_js_domain { "$SYS": hub }', "system account"),
        (
            "jetstream {}\naccounts { A { jetstream: enabled } }\ndefault_js_domain { A: hub }",
            "with enabled JetStream",
        ),
    ],
)
def test_what_cant_have_a_default_domain_is_refused(text, message):
    with pytest.raises(ConfigError, match=message):
        read_config(text, "t.conf", environ={})
