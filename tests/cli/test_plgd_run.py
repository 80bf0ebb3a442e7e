"""``pelton plgd run --gateway-store``: server, stream, pipeline and gateway in one command."""

from __future__ import annotations

import asyncio
import contextlib
import json
import signal
import socket
import subprocess
import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import pytest

from pelton.cli.plgd import beside
from pelton.cli.plgd.going_on import Interval, alone_on
from pelton.cli.plgd.run import own_session
from pelton.client.sync import connect
from pelton.plgd.fleet import FleetConfig, FleetRun
from pelton.plgd.gateway import BlockingGatewayClient
from pelton.plgd.store import SqliteStore
from pelton.testing import LocalServer
from tests.plgd.tokens import Issuer
from tests.ports import free_port

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from tests.cli.conftest import Ran

    Run = Callable[..., Ran]

PELTON = [sys.executable, "-m", "pelton.cli"]
FLEET = ["--devices", "3", "--for", "5m", "--seed", "3"]


@pytest.mark.parametrize(
    ("words", "status", "text"),
    [
        ("--gateway-listen 127.0.0.1:0", 2, "--gateway-listen needs --gateway-store"),
        ("--gateway-store s.db", 2, "--gateway-store needs --gateway-jwks"),
        (
            "--gateway-store s.db --gateway-jwks k",
            2,
            "give --gateway-cert and --gateway-key, or --gateway-plaintext",
        ),
        (
            "--gateway-store s.db --gateway-jwks k --gateway-plaintext",
            1,
            "cannot read --gateway-jwks k",
        ),
        ("--flaps 1", 2, "one short session is not flapping"),
        ("--flap-window 0s", 2, "longer than 0s"),
        ("--late-after soon", 2, '"soon" is not a duration'),
        ("--every soon", 2, '"soon" is not a duration'),
    ],
)
def test_wrong_options_are_told_before_anything_starts(
    cli: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: str, status: int, text: str
) -> None:
    monkeypatch.chdir(tmp_path)
    ran = cli("plgd", "run", "lake", *words.split())
    assert (ran.status, text in ran.err) == (status, True), ran.err
    assert not Path("lake").exists()


def test_the_time_between_batches_is_a_duration_or_in_words_of_spark() -> None:
    found = [Interval().convert(text, None, None) for text in ("10 seconds", "1m", "250ms")]
    assert found == ["10 seconds", "60000 milliseconds", "250 milliseconds"]


def test_a_store_that_is_missing_is_told(
    cli: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("k").write_text(Issuer().pem())
    words = "--gateway-store none.db --gateway-jwks k --gateway-plaintext"
    ran = cli("plgd", "run", "lake", *words.split())
    assert (ran.status, "there is no event store none.db" in ran.err) == (1, True)


def test_the_server_of_this_machine_is_used(
    cli: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with LocalServer() as server:
        port = server.url.rpartition(":")[2]
        ran = cli("plgd", "run", "lake", "--port", port)
    assert ran.status == 1
    assert f"using the server that runs on nats://127.0.0.1:{port}" in ran.err
    assert "there is no stream EVENTS: pelton stream add EVENTS" in ran.err
    assert not Path("lake/hub").exists()


def test_a_port_that_something_else_has_is_told(
    cli: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with socket.create_server(("127.0.0.1", free_port())) as taken:
        taken.settimeout(60)
        accepting = threading.Thread(target=lambda: taken.accept()[0].close(), daemon=True)
        accepting.start()
        ran = cli("plgd", "run", "lake", "--port", str(taken.getsockname()[1]))
    assert ran.status == 1
    assert "the server ended: can't listen on 127.0.0.1" in ran.err
    assert "the port is taken" in ran.err


def test_a_gateway_that_ends_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    @contextlib.asynccontextmanager
    async def ending(*_: Any) -> AsyncIterator[int]:
        task = asyncio.current_task()
        assert task is not None
        asyncio.get_running_loop().call_soon(task.cancel, "its port was taken away")
        yield 7

    monkeypatch.setattr(beside, "serving", ending)
    monkeypatch.setattr(beside, "tell", lambda *_: None)
    with beside.gateway_beside(None, ({}, None, None)) as gateway:  # type: ignore[arg-type]  # not looked at
        gateway.thread.join(10)
        with pytest.raises(click.ClickException, match="has ended: its port was taken away"):
            gateway.check()


def test_two_runs_do_not_work_on_one_folder(
    cli: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with alone_on(Path("lake")):
        for verb in ("run", "backfill"):
            ran = cli("plgd", verb, "lake")
            assert (ran.status, "another run works on lake (process " in ran.err) == (1, True)
    assert not Path("lake/tables").exists()
    with alone_on(Path("lake")):
        pass


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_one_command_serves_keeps_and_answers(tmp_path: Path) -> None:
    config = FleetConfig(devices=3, duration_s=300, seed=3)
    made = subprocess.run(
        [*PELTON, "plgd", "fleet", *FLEET, "-o", "e.jsonl", "--store", "s.db"],
        cwd=tmp_path,
        capture_output=True,
        check=False,
    )
    assert made.returncode == 0, made.stderr
    with SqliteStore(tmp_path / "s.db") as store:
        owner = next(iter(store.aggregates())).owner
    issuer = Issuer()
    (tmp_path / "k").write_text(issuer.pem())
    port = free_port()
    words = ["--json", "plgd", "run", "lake", "--port", str(port), "--buckets", "1"]
    words += ["--alerts", "ALERTS", "--gateway-store", "s.db", "--gateway-jwks", "k"]
    words += ["--gateway-listen", "127.0.0.1:0", "--gateway-plaintext"]
    process = subprocess.Popen([*PELTON, *words], cwd=tmp_path, stdout=subprocess.PIPE, text=True)
    try:
        heard = event_of(process, "listening")
        with connect(f"nats://127.0.0.1:{port}") as client:
            js = client.jetstream()
            with js.publisher() as publisher:
                count = 0
                for each in FleetRun(config).deliveries():
                    publisher.publish(each.subject, each.payload)
                    count += 1
            taken = 0
            while taken < count:
                taken += event_of(process, "batch")["messages"]
            target = f"127.0.0.1:{heard['port']}"
            with BlockingGatewayClient(target, issuer.token(owner)) as calls:
                assert len(list(calls.devices())) > 0
            assert js.stream_info("ALERTS").config.subjects == ["alerts.plgd.>"]
        process.send_signal(signal.SIGINT)
        assert event_of(process, "summary")["stopped"]
        assert process.wait(120) == 0
    finally:
        if process.poll() is None:
            process.kill()
            process.wait()
        assert process.stdout is not None
        process.stdout.close()


def event_of(process: subprocess.Popen[str], event: str) -> dict[str, Any]:
    """The next event of this kind that a command writes as a line of JSON. Others before it are printed: a busy
    machine makes it wait for a server, or end an empty batch.
    """
    assert process.stdout is not None
    while True:
        told: dict[str, Any] = json.loads(process.stdout.readline())
        if told["event"] == event:
            return told
        print(told)


def test_a_spark_that_is_too_old_is_named_in_one_line(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr("pyspark.__version__", "4.1.4")
    with pytest.raises(click.ClickException, match=r"need Spark 4\.2 or newer; this is Spark 4\.1"):
        own_session(tmp_path / "spark.log", "local[1]")
