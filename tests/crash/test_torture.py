"""Some rounds of all kinds of load on a server that is killed, and that a loss would be seen.

ROUNDS is how many lives a server has in each mode; `make torture` does hundreds.
"""

from __future__ import annotations

import pytest

from tests.crash.kinds.base import Publishing
from tests.crash.torture import LEAST, MODES, World, torture
from tests.crash.wire import Wire
from tests.peers import running_server
from tests.ways import SEED, length

ROUNDS = length(2, 15)
LOAD_S = (0.05, length(0.2, 0.6))
UNANSWERED = Publishing.window  # the last of a stream may have been acknowledged to nobody

pytestmark = [pytest.mark.slow, pytest.mark.timeout(120 + 20 * ROUNDS)]


@pytest.mark.parametrize("mode", MODES)
def test_all_kinds_of_load_survive_kills(mode: str) -> None:
    print(f"seed {SEED}")
    tally = torture("pelton", MODES[mode], SEED, ROUNDS, load_s=LOAD_S)
    assert not tally.faults, (tally.faults, tally.failing, tally.examples)
    assert tally.acked >= LEAST * ROUNDS, "too little load to say anything"


def test_a_loss_would_be_seen() -> None:
    """Messages removed and changed behind the ledgers' back are counted, each kind by its own."""
    with running_server("pelton", "--sync_interval", "2m") as server:
        world = World(server, SEED)
        world.furnish()
        world.load(0.4, lambda: server.stop(kill=True), least=1000, each=20)
        server.start()
        wire = Wire(server.port)
        for stream in ("PLAIN", "LATEST", "ATOMIC", "FAST", "SOURCED", "TTL"):
            last = wire.ok(f"STREAM.INFO.{stream}")["state"]["last_seq"]
            for seq in range(max(last - UNANSWERED - 40, 1), last + 1):
                wire.api(f"STREAM.MSG.DELETE.{stream}", {"seq": seq})
        # what is queued is not compared before it is delivered again: all of it goes
        for stream in ("KV_BUCKET", "OBJ_BUCKET", "COUNTERS", "WORK"):
            wire.ok(f"STREAM.PURGE.{stream}")
        wire.request("IDS.1", b"not one of ours")
        wire.ok("STREAM.DELETE.S2")
        wire.ok("CONSUMER.DELETE.PULLED.pull")
        wire.close()
        world.check()
    seen = {type(kind).__name__: set(kind.faults) for kind in world.kinds if kind.faults}
    lost = {name for name, faults in seen.items() if "lost" in faults}
    assert lost >= {
        "Plain",
        "Latest",
        "Lifetimes",
        "Atomic",
        "Fast",
        "Followed",
        "KeyValue",
        "Objects",
        "Counters",
        "Work",
        "Compressed",
    }, seen
    assert "stream gone" in seen["Compressed"], seen
    assert "altered" in seen["Ids"], seen
    assert "consumer gone" in seen["Pulled"], seen
    assert not {"Count", "Bytes", "Age", "Removals", "Pushed", "ComeAndGo"} & set(seen), seen
