"""A watch over a server: what it tells, once; and the commands that watch, with real servers and files."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from queue import Queue
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pelton import StreamConfig
from pelton.apply import executing
from pelton.apply.executing import execute_each
from pelton.apply.planning import Change, Difference, Plan
from pelton.apply.watching import LONGEST_WAIT_S, Glances, Patience, Watch
from pelton.cli.configuration.reconciling import Order, _Reconciler
from pelton.client.sync.jetstream import JetStream
from pelton.sync import connect
from tests import copies
from tests.copies.local import LocalServer
from tests.peers import ServerProcess

WAIT_S = 60
ORDERS = {"streams": {"ORDERS": {"subjects": ["orders.>"], "max_msgs": 100}}}
KEEP = {"KEEP": {}}


# -- what is told ----------------------------------------------------------------------------------

changes = st.builds(
    Change,
    st.sampled_from(["create", "update", "replace", "refuse", "keep"]),
    st.sampled_from("ABC"),
    differences=st.sampled_from([(), (Difference("max_msgs", 1, 2),), (Difference("x", 1, 2),)]),
    loss=st.sampled_from(["", "1 message"]),
)
plans = st.lists(changes, max_size=4, unique_by=lambda each: each.stream).map(Plan)


@given(st.lists(plans, max_size=6))
def test_each_difference_is_told_when_it_comes_and_when_it_goes(looks: list[Plan]) -> None:
    watch, before = Watch(), {}
    for plan in looks:
        now = {
            each.title: (each.action, each.differences, each.loss)
            for each in (*plan.pending, *plan.refused)
        }
        told = list(watch.compared(plan))
        assert {each.title for each in told if each.happening == "drift"} == {
            title for title, said in now.items() if before.get(title) != said
        }
        assert {each.title for each in told if each.happening == "agrees"} == (
            before.keys() - now.keys()
        )
        assert watch.drifting == bool(now)
        before = now


def test_a_failure_is_told_once_until_it_is_another_one() -> None:
    watch, change = Watch(), Change("create", "A")
    assert [len(list(watch.stuck("failed", change, why))) for why in "aab"] == [1, 0, 1]
    assert watch.in_trouble
    assert [each.happening for each in watch.made(change)] == ["done"]
    assert not watch.in_trouble
    assert len(list(watch.stuck("failed", change, "b"))) == 1


def test_the_wait_after_failures_doubles_up_to_a_minute() -> None:
    patience = Patience()
    waits = [patience.failed() for _ in range(9)]
    assert waits == [1, 2, 4, 8, 16, 32, LONGEST_WAIT_S, LONGEST_WAIT_S, LONGEST_WAIT_S]
    patience.succeeded()
    assert patience.failed() == 1


@given(st.lists(st.sampled_from("abc"), max_size=12))
def test_a_change_is_told_when_it_rests(seen: list[str]) -> None:
    glances, known, before = Glances("a"), "a", "a"
    for each in seen:
        rests = each == before
        assert glances.changed(each) == (rests and each != known)
        known, before = each if rests else known, each


# -- the commands ----------------------------------------------------------------------------------


class Watching:
    """A command that watches; its events arrive as JSON."""

    def __init__(self, url: str, *arguments: object) -> None:
        command = [sys.executable, "-m", "pelton.cli", "-s", url, *map(str, arguments), "--json"]
        self.child = copies.Popen(command, stdout=subprocess.PIPE, text=True)
        self.events: Queue[dict[str, Any]] = Queue()
        threading.Thread(target=self.read, daemon=True).start()

    def read(self) -> None:
        assert self.child.stdout is not None
        for line in self.child.stdout:
            self.events.put(json.loads(line))

    def until(self, event: str, resource: str = "") -> list[str]:
        """Wait for an event; the names of all events that came until then."""
        found = []
        while True:
            each = self.events.get(timeout=WAIT_S)
            found.append(each["event"])
            if each["event"] == event and each.get("resource", "") in (resource, ""):
                return found

    def end(self) -> int:
        self.child.send_signal(signal.SIGTERM)
        return self.child.wait(WAIT_S)


Start = Callable[..., Watching]


@pytest.fixture
def start(server: ServerProcess) -> Iterator[Start]:
    """Start a command that watches; all are ended."""
    begun: list[Watching] = []

    def begin(*arguments: object) -> Watching:
        begun.append(Watching(server.url, *arguments))
        return begun[-1]

    yield begin
    for each in begun:
        each.child.kill()
        each.child.wait()


def write(path: Path, declared: object) -> Path:
    """Replace a file at once, as editors do."""
    draft = path.with_name(f".{path.name}")
    draft.write_text(json.dumps(declared))
    draft.replace(path)
    return path


def test_drift_tells_differences_and_says_so_by_its_status(
    jetstream: JetStream, start: Start, tmp_path: Path
) -> None:
    file = write(tmp_path / "x.json", ORDERS)
    watching = start("drift", file)
    watching.until("drift", "stream ORDERS")
    config = StreamConfig(name="ORDERS", subjects=["orders.>"], max_msgs=100)
    jetstream.create_stream(config)
    watching.until("agrees", "stream ORDERS")
    jetstream.update_stream(StreamConfig(name="ORDERS", subjects=["orders.>"], max_msgs=5))
    watching.until("drift", "stream ORDERS")
    assert watching.end() == 2
    assert jetstream.stream_info("ORDERS").config.max_msgs == 5
    jetstream.update_stream(config)
    watching = start("drift", file)
    watching.until("agrees")
    assert watching.end() == 0


@pytest.mark.parametrize("command", [("drift", "--enforce"), ("apply", "--watch")])
def test_the_server_is_changed_back_and_follows_the_files(
    jetstream: JetStream, start: Start, tmp_path: Path, command: tuple[str, ...]
) -> None:
    file = write(tmp_path / "x.json", ORDERS)
    watching = start(*command, file)
    watching.until("done", "stream ORDERS")
    jetstream.update_stream(StreamConfig(name="ORDERS", subjects=["orders.>"], max_msgs=5))
    watching.until("done", "stream ORDERS")
    assert jetstream.stream_info("ORDERS").config.max_msgs == 100
    jetstream.delete_stream("ORDERS")
    watching.until("done", "stream ORDERS")
    write(file, {**ORDERS, "consumers": {"ORDERS": {"packing": {"ack_policy": "explicit"}}}})
    watching.until("done", "consumer ORDERS > packing")
    assert watching.end() == 0


def test_data_is_kept_and_other_changes_go_on(
    jetstream: JetStream, start: Start, tmp_path: Path
) -> None:
    jetstream.create_stream(StreamConfig(name="ORDERS", subjects=["orders.>"]))
    jetstream.publish("orders.1", b"")
    both = {"ORDERS": {"subjects": ["orders.>"], "storage": "memory"}, "SECOND": {}}
    watching = start("apply", "--watch", write(tmp_path / "x.json", {"streams": both}))
    told = watching.until("done", "stream SECOND")
    assert told.count("held") == 1
    assert watching.end() == 0
    info = jetstream.stream_info("ORDERS")
    assert (info.config.storage, info.state.messages) == ("file", 1)


def test_a_file_with_a_mistake_changes_nothing_and_is_told(
    jetstream: JetStream, start: Start, tmp_path: Path
) -> None:
    file = write(tmp_path / "x.json", ORDERS)
    watching = start("apply", "--watch", file)
    watching.until("done", "stream ORDERS")
    write(file, {"streams": {"ORDERS": {"subjcts": ["orders.>"]}}})
    watching.until("mistake")
    jetstream.delete_stream("ORDERS")
    watching.until("done", "stream ORDERS")
    assert jetstream.stream_info("ORDERS").config.max_msgs == 100


def test_a_mounted_folder_of_manifests_is_followed(
    jetstream: JetStream, start: Start, tmp_path: Path
) -> None:
    """The files of a ConfigMap are links to a folder behind one link, which is replaced as a whole."""

    def mount(number: int, subjects: list[str]) -> None:
        folder = tmp_path / f"..{number}"
        folder.mkdir()
        manifest = {
            "apiVersion": "jetstream.nats.io/v1beta2",
            "kind": "Stream",
            "metadata": {"name": "events"},
            "spec": {"name": "events", "subjects": subjects, "storage": "file"},
        }
        (folder / "events.yaml").write_text(json.dumps(manifest))
        os.symlink(folder.name, tmp_path / "..new")
        os.replace(tmp_path / "..new", tmp_path / "..data")

    mount(1, ["plgd.>"])
    os.symlink("..data/events.yaml", tmp_path / "events.yaml")
    watching = start("apply", "--watch", tmp_path)
    watching.until("done", "stream events")
    mount(2, ["plgd.>", "more.>"])
    watching.until("done", "stream events")
    assert jetstream.stream_info("events").config.subjects == ["plgd.>", "more.>"]


def test_only_what_has_the_owners_label_is_deleted(
    jetstream: JetStream, start: Start, tmp_path: Path
) -> None:
    jetstream.create_stream(StreamConfig(name="OTHERS"))
    file = write(tmp_path / "x.json", {"streams": {"A": {}, "B": {}}})
    watching = start("apply", "--watch", "--owner", "shop", "--prune", file)
    watching.until("done", "stream B")
    write(file, {"streams": {"A": {}}})
    watching.until("done", "stream B")
    assert {"A", "OTHERS"} <= set(jetstream.stream_names())
    assert "B" not in jetstream.stream_names()


@pytest.mark.peer
def test_what_is_gone_again_behind_a_change_is_looked_at_soon(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No advisory tells of it when a server that keeps nothing has restarted."""

    def made_and_gone(js: JetStream, *given: Any, **told: Any) -> None:
        execute_each(js, *given, **told)
        js.delete_stream("ORDERS")

    file, hour_ns = write(tmp_path / "x.json", ORDERS), 3600 * 10**9
    session: Any = SimpleNamespace(jetstream=lambda client: client.jetstream(), as_json=True)
    reconciler = _Reconciler(session, Order((str(file),), (), "", False, True, False, hour_ns))
    with LocalServer() as server, connect(server.url) as client:
        with monkeypatch.context() as patch:
            patch.setattr(executing, "execute_each", made_and_gone)
            assert reconciler.look(client) < LONGEST_WAIT_S
        assert reconciler.look(client) == 3600
        assert client.jetstream().stream_names() == ["ORDERS"]


def test_a_server_that_comes_later_or_goes_away_is_waited_for(tmp_path: Path) -> None:
    with LocalServer() as server:
        url = server.url
        server.stop()
        file = write(tmp_path / "x.json", ORDERS)
        watching = Watching(url, "apply", "--watch", "--every", "1h", file)
        try:
            watching.until("unreachable")
            server.start()
            watching.until("done", "stream ORDERS")
            watching.until("agrees")  # and then nothing is asked for an hour
            for _ in range(2):
                server.stop()
                server.start()
                watching.until("done", "stream ORDERS")
        finally:
            watching.child.kill()
            watching.child.wait()
