"""The shipper against a real server: each line once, whatever is refused, lost, repeated or
restarted.
"""

import gzip
import os
import time

import pytest

from pelton.client.base.models import StreamConfig
from pelton.client.sync import connect
from pelton.errors import PeltonError
from pelton.pipeline.logs import names
from pelton.pipeline.logs.chain import WINDOW_MESSAGES, Chain, read_mark
from pelton.pipeline.logs.files import Identity
from pelton.pipeline.logs.shipper import Shipper, ship_forever

pytestmark = pytest.mark.peer


class Box:
    """A folder of logs, a stream, and shippers of the one into the other."""

    def __init__(self, server, client, folder):
        self.url = server.url
        self.js = client.jetstream()
        self.folder = folder
        self.clients = []

    def make_stream(self, **config):
        self.js.create_stream(
            StreamConfig(name="LOGS", subjects=["logs.>"], storage="memory", **config)
        )

    def shipper(self, window=50):
        client = connect(self.url)
        self.clients.append(client)
        return Shipper(Chain(client.jetstream(), "LOGS", window), str(self.folder), "box")

    def write(self, name, *lines, end="\n"):
        path = self.folder / name
        with path.open("a") as file:
            file.write("\n".join(lines) + end)
        return path

    def stored(self):
        """All messages as (file name, offset, identity, text)."""
        state = self.js.stream_info("LOGS").state
        rows = []
        for seq in range(state.first_seq, state.last_seq + 1 if state.messages else 0):
            message = self.js.get_message("LOGS", seq)
            headers = dict(message.headers)
            path = headers.get(names.FILE_HEADER, "/?")
            rows.append(
                (
                    path.rpartition("/")[2],
                    int(headers.get(names.OFFSET_HEADER, -1)),
                    headers.get(names.IDENTITY_HEADER, ""),
                    message.data.decode(),
                )
            )
        return rows

    def texts(self, name):
        return [text for file, _, _, text in self.stored() if file == name]


@pytest.fixture
def box(server, client, tmp_path):
    made = Box(server, client, tmp_path)
    made.make_stream()
    yield made
    for opened in made.clients:
        opened.close()
    made.js.delete_stream("LOGS")


def test_lines_of_several_files_with_their_headers(box):
    path = box.write("a.log", "one", "two", "")
    box.write("b.log", "eins")
    ship = box.shipper()
    assert ship.step() == 4
    assert ship.files == 2
    assert box.texts("a.log") == ["one", "two", ""]
    assert box.texts("b.log") == ["eins"]
    message = box.js.get_message("LOGS", last_by_subject=names.subjects_of("box", str(path)))
    headers = dict(message.headers)
    assert headers[names.HOST_HEADER] == "box"
    assert headers[names.FILE_HEADER] == str(path)
    assert headers[names.OFFSET_HEADER] == "8"
    assert headers[names.NEXT_HEADER] == "9"
    identity = Identity.parse(headers[names.IDENTITY_HEADER])
    assert identity.inode == path.stat().st_ino
    assert headers["Nats-Msg-Id"] == f"{identity}:8"
    assert message.subject == names.subject_of("box", str(path), str(identity))
    assert names.path_of(message.subject) == str(path)


def test_following_and_new_files(box):
    now = [0.0]
    box.write("a.log", "one")
    ship = box.shipper()
    ship._open._clock = lambda: now[0]
    assert ship.step() == 1
    box.write("a.log", "two")
    box.write("b.log", "eins")
    assert ship.step() == 1
    now[0] += 10
    assert ship.step() == 1
    assert ship.step() == 0
    assert (box.texts("a.log"), box.texts("b.log")) == (["one", "two"], ["eins"])


def test_a_restart_goes_on_from_the_stream_even_without_a_duplicate_window(box):
    box.js.delete_stream("LOGS")
    box.make_stream(duplicate_window=0.1)
    box.write("a.log", *(f"line {number}" for number in range(300)))
    box.shipper().step()
    time.sleep(0.2)  # the window of the stream, which is the server's clock
    box.write("a.log", "more")
    assert box.shipper().step() == 1
    assert box.shipper().step() == 0
    assert box.texts("a.log") == [*(f"line {number}" for number in range(300)), "more"]


@pytest.mark.parametrize("cut", [1, 7, 50, 99])
def test_a_shipper_that_dies_anywhere_is_gone_on_from(box, cut):
    """Only a beginning of what was sent arrives, as after kill -9 of shipper or server."""
    lines = [f"line {number}" for number in range(100)]
    box.write("a.log", *lines)
    box.write("b.log", *lines)
    first = box.shipper()
    sent = 0
    publish = first._chain.publish

    def dying(*message):
        nonlocal sent
        if sent == cut:
            raise KeyboardInterrupt
        sent += 1
        publish(*message)

    first._chain.publish = dying
    with pytest.raises(KeyboardInterrupt):
        first.step()
    box.clients[-1].close()
    box.shipper().step()
    assert box.texts("a.log") == lines
    assert box.texts("b.log") == lines


@pytest.mark.parametrize("refused", [0, 1, 17, 60])
def test_a_refusal_in_the_middle_lets_nothing_later_in(box, refused):
    """One of many under way is refused; no later line may be stored before it is made good."""
    lines = [f"line {number}" for number in range(100)]
    box.write("a.log", *lines)
    ship = box.shipper(window=40)
    chain, count = ship._chain, 0
    publish = chain.publish

    def sabotage(subject, data, headers, message_id):
        nonlocal count
        if count == refused:
            headers["Nats-Expected-Stream"] = "ANOTHER"
        count += 1
        publish(subject, data, headers, message_id)

    chain.publish = sabotage
    ship.step()
    during = box.texts("a.log")
    assert during == lines[: len(during)]
    chain.publish = publish
    while ship.step():
        pass
    assert box.texts("a.log") == lines
    assert ship.acked == 100


def test_somebody_else_publishing_costs_nothing_but_time(box):
    lines = [f"line {number}" for number in range(60)]
    box.write("a.log", *lines)
    ship = box.shipper(window=10)
    publish, count = ship._chain.publish, 0

    def disturbed(*message):
        nonlocal count
        count += 1
        if count % 7 == 0:
            box.js.publish("logs.somebody.else", b"hello")
        publish(*message)

    ship._chain.publish = disturbed
    for _ in range(100):
        if len(box.texts("a.log")) == 60:
            break
        ship.step()
    assert box.texts("a.log") == lines


def test_two_shippers_of_the_same_files_double_nothing(box):
    box.write("a.log", *(f"line {number}" for number in range(50)))
    one, other = box.shipper(), box.shipper()
    one._open.look()
    other._open.look()
    one.step()
    other.step()
    box.write("a.log", "more")
    other.step()
    one.step()
    assert box.texts("a.log") == [*(f"line {number}" for number in range(50)), "more"]


def test_refused_again_and_again_is_an_error(box):
    box.js.update_stream(
        StreamConfig(name="LOGS", subjects=["logs.>"], storage="memory", max_msgs=5, discard="new")
    )
    box.write("a.log", *(f"line {number}" for number in range(20)))
    ship = box.shipper()
    ship.step()
    for _ in range(4):  # each is made good by starting over, which does not help
        ship.step()
    with pytest.raises(PeltonError):
        ship.step()
    assert box.texts("a.log") == [f"line {number}" for number in range(5)]
    box.js.update_stream(StreamConfig(name="LOGS", subjects=["logs.>"], storage="memory"))
    ship.recover()
    ship.step()
    assert box.texts("a.log") == [f"line {number}" for number in range(20)]


def test_drain_ships_ends_without_newline_and_ends(box):
    box.write("a.log", "one", "two", end="")
    ship = box.shipper()
    assert ship.drain() == 2
    assert ship.drain() == 0
    box.write("a.log", "", "three")
    again = box.shipper()
    assert again.drain() == 1
    assert box.texts("a.log") == ["one", "two", "three"]


def test_lines_that_are_longer_than_a_message_may_be(box):
    box.write("a.log", "x" * 3_000_000, "short")
    box.shipper().step()
    texts = box.texts("a.log")
    assert "".join(texts[:-1]) == "x" * 3_000_000
    assert texts[-1] == "short"


def test_a_foreign_last_message_means_from_the_begin(box):
    path = box.write("a.log", "one")
    box.js.publish(f"logs.box.{names.token(str(path)[1:])}", b"not a shipper's")
    box.js.publish(f"logs.box.{names.token(str(path)[1:])}.1-2-3-a-0", b"neither")
    assert read_mark(box.js.get_message("LOGS", 1)) is None
    box.shipper().step()
    assert box.texts("a.log") == ["one"]


def test_subjects_of_earlier_versions_are_continued(box, monkeypatch):
    path = box.write("a.log", "one", "two")
    with monkeypatch.context() as patch:
        patch.setattr(
            names, "subject_of", lambda host, path, identity: f"logs.{host}.{names.token(path[1:])}"
        )
        box.shipper().step()
    path.rename(path.with_name("a.log.1"))
    with path.with_name("a.log.1").open("a") as file:
        file.write("three\n")
    box.write("a.log", "four")
    ship = box.shipper()
    ship.drain()
    assert box.texts("a.log") == ["one", "two", "three", "four"]
    assert box.shipper().drain() == 0
    assert ship.unread == {}


def test_files_that_cannot_be_shipped_cost_only_themselves(box):
    box.write("a.log", "one")
    box.write("line\nend.log", "two")
    deep = box.folder
    for _ in range(7):
        deep = deep / ("\u00e4" * 110)
        deep.mkdir()
    (deep / "long.log").write_text("three\n")
    (box.folder / "packed.log").write_bytes(b"\xfd7zXZ\x00\x00\x04")
    (box.folder / "broken.log").write_bytes(b"\x1f\x8b\x08\x00garbage")
    (box.folder / "caf\udce9.log").write_text("four\n")
    ship = box.shipper()
    ship.drain()
    assert sorted(text for *_, text in box.stored()) == ["four", "one"]
    reasons = {path.rpartition("/")[2]: reason for path, reason in ship.unread.items()}
    assert sorted(reasons) == ["broken.log", "line\nend.log", "long.log", "packed.log"]
    assert "line end" in reasons["line\nend.log"]
    assert "too long" in reasons["long.log"]
    assert "xz" in reasons["packed.log"]
    assert "gzip" in reasons["broken.log"]


def test_a_compressed_file_that_is_named_is_read(box):
    with gzip.open(box.folder / "a.log.gz", "wb") as file:
        file.write(b"one\ntwo\n")
    client = connect(box.url)
    box.clients.append(client)
    where = str(box.folder / "a.log.gz")
    for _ in range(2):
        Shipper(Chain(client.jetstream(), "LOGS"), where, "box").drain()
    assert box.texts("a.log.gz") == ["one", "two"]


def test_a_hole_under_a_writer_is_no_text(box):
    """A writer without O_APPEND goes on at its offset after copytruncate."""
    path = box.folder / "a.log"
    with path.open("w") as file:
        file.write("x" * 9000 + "\n")
        file.flush()
        ship = box.shipper()
        ship.step()
        path.with_name("a.log.1").write_bytes(path.read_bytes())
        os.truncate(path, 0)
        for text in ("two\n", "three\n"):
            file.write(text)
            file.flush()
            ship._open._look_at = 0.0
            ship.step()
    assert box.texts("a.log")[1:] == ["two", "three"]
    assert box.shipper().drain() == 0


def test_a_log_that_was_truncated_while_nothing_ran_is_named(box):
    path = box.write("a.log", "one", "two")
    ship = box.shipper()
    ship.step()
    assert ship.unread == {}
    os.truncate(path, 0)
    box.write("a.log", "three")
    again = box.shipper()
    again.step()
    assert list(again.unread) == [str(path)]
    assert box.texts("a.log") == ["one", "two", "three"]
    assert box.shipper().step() == 0


def test_trouble_is_told_and_waited_out(box, monkeypatch):
    box.write("a.log", "one")
    ship = box.shipper()
    step, calls, told = ship.step, 0, []

    def troubled():
        nonlocal calls
        calls += 1
        if calls == 1:
            raise PeltonError("away")
        return step()

    monkeypatch.setattr(ship, "step", troubled)
    ship_forever(ship, lambda seconds: calls >= 3, told.append)
    assert [str(error) for error in told] == ["away", "None"]
    assert box.texts("a.log") == ["one"]
    assert WINDOW_MESSAGES > 1


def test_a_stop_ends_it_within_a_file_and_the_next_goes_on(box):
    lines = [f"line {number}" for number in range(100)]
    box.write("a.log", *lines)
    ship = box.shipper()
    ship._stopped = lambda: ship._chain._publisher is not None and len(sent) >= 30
    sent, publish = [], ship._chain.publish

    def counted(*message):
        sent.append(message)
        publish(*message)

    ship._chain.publish = counted
    assert ship.drain() == 30
    assert box.shipper().drain() == 70
    assert box.texts("a.log") == lines
