"""The dialects of 2019 and 2020 between accounts: exports, imports, accounts without JetStream."""

import json
from pathlib import Path

import pytest

from pelton.cli.early.asking import ask, receive
from pelton.errors import NoRespondersError
from pelton.sync import connect
from tests.copies.local import LocalServer

ACCOUNTS = """
accounts {
  A: {
    jetstream: enabled, users: [{user: a, password: a}]
    exports: [{service: "$JS.STREAM.LIST"}, {service: "$JS.STREAM.S.INFO"}]
  }
  B: {
    users: [{user: b, password: b}]
    imports: [
      {service: {account: A, subject: "$JS.STREAM.LIST"}}
      {service: {account: A, subject: "$JS.STREAM.S.INFO"}, to: "s.info"}
    ]
  }
}
"""


def test_only_what_is_exported_is_answered(tmp_path: Path) -> None:
    config = tmp_path / "server.conf"
    config.write_text(ACCOUNTS)
    with (
        LocalServer(options=["-c", str(config)]) as server,
        connect(server.url.replace("//", "//a:a@")) as a,
        connect(server.url.replace("//", "//b:b@")) as b,
    ):
        assert ask(a, "$JS.ENABLED") == b"+OK"
        assert ask(a, "$JS.STREAM.S.CREATE", b'{"name":"S","subjects":["s"]}') == b"+OK"
        assert json.loads(receive(b, "$JS.STREAM.LIST", b"", 60).data) == ["S"]
        assert json.loads(receive(b, "s.info", b"", 60).data)["config"]["name"] == "S"
        with pytest.raises(NoRespondersError):
            receive(b, "$JS.STREAM.S.INFO", b"", 60)
        for subject in ("$JS.ENABLED", "$JS.INFO"):
            answer = receive(b, subject, b"", 60).data
            assert answer == b"-ERR 'jetstream not enabled for account'"
        # a stream that captures these subjects gets what nobody answers, as with the API's
        config_of = {"name": "C", "subjects": ["$JS.STREAM.>"], "no_ack": True}
        assert ask(a, "$JS.STREAM.C.CREATE", json.dumps(config_of).encode()) == b"+OK"
        assert json.loads(ask(a, "$JS.STREAM.LIST")) == ["C", "S"]
        assert a.jetstream().stream_info("C").state.messages == 0
