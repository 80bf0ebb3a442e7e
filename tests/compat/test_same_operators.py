"""A server with an operator beside a real nats-server: what monitoring shows of the operator and of
the accounts' JWTs, and what a service learns about who answered.
"""

from __future__ import annotations

import json
import urllib.request
from typing import TYPE_CHECKING, Any

import pytest

from pelton import nkeys
from tests.compat.scene import NEEDS_BOTH
from tests.compat.test_same_monitoring import differences
from tests.peers import free_port, running_server
from tests.server.auth import signed
from tests.server.auth.live import Talk

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.peers import ServerProcess

pytestmark = NEEDS_BOTH
EXPORTS = [
    {
        "name": "e",
        "subject": "q",
        "type": "service",
        "service_latency": {"sampling": 100, "results": "lat"},
    }
]
IMPORTS = [
    {
        "name": "i",
        "subject": "q",
        "account": signed.ACCOUNT.public,
        "local_subject": "w",
        "type": "service",
        "share": True,
    }
]
EXTRA = """
server_name: same
http: 127.0.0.1:{http}
system_account: {system}
jetstream {{ sync_interval: "2m", max_mem: 64MB, max_file: 64MB, domain: hub }}
"""


class Side:
    """One server, with a user of each account connected."""

    def __init__(self, server: ServerProcess, http: int) -> None:
        self.http = http
        self.a = self._connect(server, signed.USER, signed.ACCOUNT)
        self.b = self._connect(server, signed.STRANGER, signed.OTHER)

    def _connect(self, server: ServerProcess, user: Any, account: Any) -> Talk:
        talk = Talk(server)
        token = signed.user_jwt(user, signer=account, tags=["t"])
        signature = nkeys.sign_nonce(user.seed, talk.info["nonce"])
        assert talk.connect(jwt=token, sig=signature, headers=True) == "PONG"
        return talk

    def get(self, path: str) -> Any:
        with urllib.request.urlopen(f"http://127.0.0.1:{self.http}{path}", timeout=20) as found:
            return json.load(found)


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Side, Side]]:
    folder: Path = tmp_path_factory.mktemp("operators")
    storage = {"mem_storage": 1 << 20, "disk_storage": 1 << 20, "streams": -1, "consumer": -1}
    mapping = {"m.1": [{"subject": "m.2", "weight": 50}]}
    accounts = (
        signed.account_jwt(
            signed.ACCOUNT, exports=EXPORTS, mappings=mapping, limits=storage, tags=["x"]
        ),
        signed.account_jwt(signed.OTHER, name="B", imports=IMPORTS),
    )
    sides = []
    with running_both(folder, accounts) as servers:
        for server, http in servers:
            sides.append(Side(server, http))
        yield sides[0], sides[1]
        for side in sides:
            side.a.close()
            side.b.close()


def running_both(folder: Path, accounts: tuple[str, ...]) -> Any:
    """Our server and nats-server with these accounts: (server, monitoring port) each."""
    from contextlib import ExitStack, contextmanager

    @contextmanager
    def run() -> Iterator[list[tuple[ServerProcess, int]]]:
        with ExitStack() as stack:
            found = []
            for kind in ("pelton", "nats-server"):
                http = free_port()
                extra = EXTRA.format(http=http, system=signed.SYSTEM.public)
                path = folder / f"{kind}.conf"
                path.write_text(signed.config(*accounts, extra=extra))
                found.append((stack.enter_context(running_server(kind, "-c", str(path))), http))
            yield found

    return run()


def test_the_operator(pair: tuple[Side, Side]) -> None:
    assert not differences(*(side.get("/varz") for side in pair))
    assert pair[0].get("/varz")["trusted_operators_claim"][0]["sub"] == signed.OPERATOR.public


@pytest.mark.parametrize("account", [signed.ACCOUNT, signed.OTHER, signed.SYSTEM])
def test_the_accounts(account: Any, pair: tuple[Side, Side]) -> None:
    ours, theirs = (side.get(f"/accountz?acc={account.public}") for side in pair)
    for page in (ours, theirs):
        page["account_detail"].pop("subscriptions")
        if account is signed.SYSTEM:  # made anew for each server
            page["account_detail"]["decoded_jwt"].pop("jti")
            page["account_detail"]["decoded_jwt"].pop("iat")
            page["account_detail"].pop("jwt")
    rows = [page["account_detail"]["imports"] for page in (ours, theirs)]
    for each in rows:
        each.sort(key=lambda row: (row["account"], row["local_subject"]))
    assert not differences(ours, theirs)
    assert ours["account_detail"]["decoded_jwt"]["sub"] == account.public


def test_who_answered(pair: tuple[Side, Side]) -> None:
    events = []
    for side in pair:
        side.a.send("SUB q 1\nSUB lat 2\nPING\n")
        assert side.a.say("") == "PONG"
        side.b.send("SUB in 1\nPUB w in 1\nx\n")
        line = side.a.say("")
        words = line.split()
        size = int(words[-1])
        if words[0] == "HMSG":
            side.a.line(), side.a.line(), side.a.line()
        side.a.line()
        reply = words[3]
        side.a.send(f"PUB {reply} 2\nok\n")
        while not side.a.say("").startswith("MSG lat"):
            pass
        events.append(json.loads(side.a.line()))
        assert size
    for event in events:
        for who in ("requestor", "responder"):
            event[who]["jwt"] = event[who].get("jwt", "")[:9]
            for name in ("start", "rtt", "id", "server_id"):
                event[who].pop(name, None)
        for name in ("id", "timestamp", "start", "service", "system", "total"):
            event.pop(name, None)
    assert not differences(*events), events
