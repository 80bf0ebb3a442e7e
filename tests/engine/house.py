"""A whole server without sockets or processes: engine, core, a clock that tests set, a folder."""

import json
from pathlib import Path
from random import Random
from typing import Any

from pelton.api.calls import AccountLimits
from pelton.core.base.clock import Clock
from pelton.core.base.disk import Disk
from pelton.engine.base.settings import Settings
from pelton.engine.engine import Engine
from pelton.vault import Vault
from tests.core.wires import Server

START_NS = 1_700_000_000_000_000_000
SECOND = 1_000_000_000


class House:
    """One server over a store folder. `restart` and `crash` return the next server over the same
    folder.
    """

    def __init__(
        self,
        folder: Path,
        now_ns: int = START_NS,
        disk: Disk | None = None,
        account_limits: dict[str, AccountLimits] | None = None,
        vault: Vault | None = None,
        gradually: bool = False,
        clock: Clock | None = None,
        **settings: Any,
    ) -> None:
        """`gradually`: the test recovers the streams with `engine.open_more`. `clock`: in place of
        one that begins at `now_ns`.
        """
        self.folder = folder
        self.disk = disk or Disk()
        self.settings = settings
        self.account_limits = account_limits
        self.vault = vault
        self.server = Server(now_ns, clock=clock)
        self.reports: list[str] = []
        self.engine = Engine(
            self.server.reactor,
            self.disk,
            str(folder),
            settings=Settings(server_name="house", server_version="2.15.0", **settings),
            random=Random(1),
            report=self.reports.append,
            vault=vault,
        )
        self.account = self.engine.add("$G", self.server.router, account_limits)
        self.server.reactor.turn()  # takes over the clock's time
        if gradually:
            self.engine.begin("$G")
        else:
            self.engine.start()
        self.client = self.server.client()
        self.client.send("SUB _I.> 1\r\n")
        self.requests = 0

    def alarms(self) -> list[str]:
        """The reports, without those about bytes that were never synced, which any power cut may
        cause.
        """
        usual = (
            " lost: ",
            "which were unfinished or damaged; they are kept",
            " are damaged",
            "ignored the unreadable file",
            "not an ack journal",
        )
        return [line for line in self.reports if not any(words in line for words in usual)]

    # -- as a client

    def request(self, subject: str, body: Any = b"", headers: bytes = b"") -> list[Any]:
        """Send a request; return all messages that arrive in this turn: (headers, payload)."""
        self.requests += 1
        reply = f"_I.{self.requests}"
        payload = body if isinstance(body, bytes) else json.dumps(body).encode()
        if headers:
            sizes = f"{len(headers)} {len(headers) + len(payload)}"
            head = f"HPUB {subject} {reply} {sizes}\r\n".encode() + headers
        else:
            head = f"PUB {subject} {reply} {len(payload)}\r\n".encode()
        events: list[Any] = self.client.send(head + payload + b"\r\n").events()
        return [(event[4], event[5]) for event in events if event[1] == reply]

    def api(self, call: str, body: Any = b"", headers: bytes = b"") -> Any:
        """Return the JSON answer of an API call; None when there is none."""
        answers = self.request(f"$JS.API.{call}", body, headers)
        assert not self.server.errors, self.server.errors
        return json.loads(answers[0][1]) if answers else None

    def ok(self, call: str, body: Any = b"") -> Any:
        """Return the answer of a call that must succeed."""
        answer = self.api(call, body)
        assert "error" not in answer, answer
        return answer

    def error(self, call: str, body: Any = b"") -> tuple[int, str]:
        """Return error code and description of a call that must fail."""
        answer = self.api(call, body)
        return answer["error"]["err_code"], answer["error"]["description"]

    def publish(self, subject: str, payload: bytes = b"x", headers: bytes = b"") -> Any:
        """Publish; return the PubAck."""
        return json.loads(self.request(subject, payload, headers)[0][1])

    def stream(self, name: str = "S", **fields: Any) -> Any:
        return self.ok(f"STREAM.CREATE.{name}", {"name": name, **fields})

    def consumer(self, name: str = "c", stream: str = "S", **fields: Any) -> Any:
        config = {"name": name, **fields}
        return self.ok(
            f"CONSUMER.CREATE.{stream}.{name}", {"stream_name": stream, "config": config}
        )

    def pull(self, batch: int = 1, consumer: str = "c", stream: str = "S") -> list[Any]:
        """Send a no-wait pull request; return the MSG events without status messages."""
        subject = f"$JS.API.CONSUMER.MSG.NEXT.{stream}.{consumer}"
        body = json.dumps({"batch": batch, "no_wait": True})
        self.requests += 1
        self.client.send(f"PUB {subject} _I.{self.requests} {len(body)}\r\n{body}\r\n")
        events: list[Any] = self.client.events()
        return [event for event in events if not event[4].startswith(b"NATS/1.0 4")]

    def send(self, subject: str, payload: bytes = b"") -> None:
        self.client.send(b"PUB %s %d\r\n%s\r\n" % (subject.encode(), len(payload), payload))
        self.client.events()

    # -- time and restarts

    def pass_time(self, ns: int, step_ns: int = SECOND // 20) -> None:
        """Let time pass in steps, with a tick and a turn at each step."""
        end = self.server.clock.now() + ns
        while self.server.clock.now() < end:
            self.server.clock.advance(min(step_ns, end - self.server.clock.now()))
            self.engine.tick(self.server.clock.now())
            self.server.reactor.settle()

    def restart(self) -> "House":
        """Stop cleanly and start the next server."""
        self.engine.close()
        return self.crash()

    def crash(self, *, gradually: bool = False) -> "House":
        """Start the next server as after a kill of this one."""
        assert not self.server.errors, self.server.errors
        later_ns = self.server.clock.now() + SECOND
        return House(
            self.folder,
            later_ns,
            self.disk,
            self.account_limits,
            self.vault,
            gradually=gradually,
            **self.settings,
        )
