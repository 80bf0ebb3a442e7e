"""Rotations of every scheme against the real shipper: each line is stored exactly once.

The model is a list of the lines that were written. Files are renamed, copied and truncated, numbered,
dated and compressed, while the shipper runs and while nothing runs.
"""

import contextlib
import gzip
import itertools
import os
import shutil
import time
from pathlib import Path

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from pelton.client.base.models import StreamConfig
from pelton.pipeline.logs.shipper import Chain, Shipper
from tests.ways import length

pytestmark = [pytest.mark.peer, pytest.mark.timeout(600)]

_numbers = itertools.count(1)


class House:
    """A folder with logs, a writer of each, a shipper, and the clock of both."""

    def __init__(self, client, folder: Path) -> None:
        self.folder = folder
        self.js = client.jetstream()
        self.stream = f"LOGS{next(_numbers)}"
        self.js.create_stream(
            StreamConfig(name=self.stream, subjects=[f"logs.{self.stream}.>"], storage="memory")
        )
        self.ahead = 0.0
        self.written: dict[str, list[str]] = {}
        self.shipper: Shipper | None = None
        self.dates = 0
        self.start()

    def now(self) -> float:
        return time.time() + self.ahead

    def start(self) -> None:
        if self.shipper is None:
            chain = Chain(self.js, self.stream, 50)
            self.shipper = Shipper(chain, str(self.folder), self.stream, clock=self.now)

    def stop(self) -> None:
        if self.shipper is not None:
            self.shipper.close()
            self.shipper = None

    def step(self) -> None:
        if self.shipper is not None:
            while self.shipper.step():
                pass

    def break_off(self) -> None:
        """Die after some lines of a step, which the server stores before the next shipper asks.

        A server may answer a request before it stores what it read earlier on the connection. A copy
        of a file of which it has no line yet would be a new file.
        """
        if self.shipper is None:
            return
        left = 2
        chain = self.shipper._chain
        publish = chain.publish

        def dying(*message):
            nonlocal left
            left -= 1
            if left < 0:
                raise KeyboardInterrupt
            publish(*message)

        chain.publish = dying
        with contextlib.suppress(KeyboardInterrupt):
            self.shipper.step()
        chain.settle()
        self.stop()

    def later(self) -> None:
        """Time in which the shipper looks, decides, and looks again."""
        for _ in range(4):
            self.ahead += 30.0
            self.step()

    def end(self) -> None:
        self.start()
        self.later()
        self.shipper.drain()
        self.stop()
        self.start()
        self.later()
        self.shipper.drain()

    def write(self, log: str, count: int = 3, end: str = "\n") -> None:
        lines = self.written.setdefault(log, [])
        with (self.folder / log).open("a") as file:
            for _ in range(count):
                lines.append(f"line {len(lines)} of {log}")
                file.write(lines[-1] + end)

    def write_header(self, log: str) -> None:
        """The same first line in each file, as of programs that name themselves."""
        self.written.setdefault(log, []).append(f"# {log}")
        with (self.folder / log).open("a") as file:
            file.write(f"# {log}\n")

    def shift(self, log: str, form: str) -> str:
        """Number the older files up; the name that is free now."""
        for number in range(20, 0, -1):
            for ending in ("", ".gz"):
                old = self.folder / (form.format(number) + ending)
                if old.exists():
                    old.rename(self.folder / (form.format(number + 1) + ending))
        return form.format(1)

    def name(self, log: str, scheme: str) -> str:
        stem, extension = log.rsplit(".", 1)
        self.dates += 1
        day = f"2026-{self.dates // 28 + 1:02}-{self.dates % 28 + 1:02}"
        return {
            "number": lambda: self.shift(log, f"{log}.{{}}"),
            "number before": lambda: self.shift(log, f"{stem}.{{}}.{extension}"),
            "date": lambda: f"{log}-{day.replace('-', '')}",
            "dashed date": lambda: f"{log}.{day}",
            "date before": lambda: f"{stem}-{day}.{extension}",
        }[scheme]()

    def rotate(self, log: str, scheme: str, how: str) -> None:
        path = self.folder / log
        if not path.exists():
            return
        new = self.folder / self.name(log, scheme)
        if how == "rename":
            path.rename(new)
        elif how == "copytruncate":
            shutil.copyfile(path, new)
            os.truncate(path, 0)
        else:
            written = path.stat()
            path.rename(new)
            if how == "compress at once":
                self.compress(new, written)

    def compress(self, path: Path, written: os.stat_result) -> None:
        target = path.with_name(path.name + ".gz")
        with path.open("rb") as source, gzip.open(target, "wb") as file:
            shutil.copyfileobj(source, file)
        os.utime(target, ns=(written.st_atime_ns, written.st_mtime_ns))
        path.unlink()

    def compress_old(self) -> None:
        for path in self.folder.iterdir():
            if path.name not in self.written and not path.name.endswith(".gz"):
                self.compress(path, path.stat())

    def stored(self) -> list[str]:
        state = self.js.stream_info(self.stream).state
        last = state.last_seq if state.messages else 0
        return [
            self.js.get_message(self.stream, seq).data.decode()
            for seq in range(state.first_seq, last + 1)
        ]

    def check(self) -> None:
        self.end()
        wanted = [line for lines in self.written.values() for line in lines]
        assert sorted(self.stored()) == sorted(wanted), self.shipper.unread
        assert self.shipper.unread == {}

    def close(self) -> None:
        self.stop()
        self.js.delete_stream(self.stream)


@pytest.fixture
def house(client, tmp_path):
    made = House(client, tmp_path)
    yield made
    made.close()


SCHEMES = ["number", "number before", "date", "dashed date", "date before"]
WAYS = ["rename", "copytruncate", "compress at once"]


@pytest.mark.parametrize("running", [True, False], ids=["running", "stopped"])
@pytest.mark.parametrize("how", WAYS)
@pytest.mark.parametrize("scheme", SCHEMES)
def test_each_scheme(house, scheme, how, running):
    house.write_header("app.log")
    for _ in range(3):
        house.write("app.log", 5)
        house.step()
        if not running:
            house.stop()
            house.write("app.log", 5)
        house.rotate("app.log", scheme, how)
        house.write_header("app.log")
        house.start()
        house.later()
    house.check()


_logs = st.sampled_from(["app.log", "web.log"])
_actions = st.lists(
    st.one_of(
        st.tuples(st.just("write"), _logs, st.integers(1, 5)),
        st.tuples(
            st.just("rotate"), _logs, st.tuples(st.sampled_from(SCHEMES), st.sampled_from(WAYS))
        ),
        st.tuples(
            st.sampled_from(["step", "stop", "start", "later", "compress", "break"]),
            st.just(""),
            st.none(),
        ),
    ),
    max_size=25,
)


def play(house, actions, usual, header):
    """Do the actions; ``usual`` is the scheme and way of each rotation, None for that of the action."""
    new = set()
    for log in ("app.log", "web.log"):
        house.write(log)
    house.step()
    for action, log, drawn in actions:
        if action == "write":
            if header and log in new:
                house.write_header(log)
            new.discard(log)
            house.write(log, drawn)
        elif action == "rotate":
            house.rotate(log, *(usual or drawn))
            new.add(log)
        elif action == "compress":
            house.compress_old()
        elif action == "break":
            house.break_off()
        else:
            getattr(house, action)()


@settings(max_examples=length(25, 300), deadline=None, suppress_health_check=list(HealthCheck))
@given(
    actions=_actions,
    usual=st.one_of(st.none(), st.tuples(st.sampled_from(SCHEMES), st.sampled_from(WAYS))),
    header=st.booleans(),
)
@example(
    actions=[
        ("rotate", "web.log", None),
        ("write", "web.log", 4),
        ("break", "", None),
        ("rotate", "web.log", None),
    ],
    usual=("number", "copytruncate"),
    header=False,
)
def test_any_order_of_them(client, tmp_path_factory, actions, usual, header):
    house = House(client, tmp_path_factory.mktemp("logs"))
    play(house, actions, usual, header)
    house.check()
    house.close()


def test_the_end_of_the_old_file_comes_before_the_new_one(house):
    house.write("app.log", 1)
    house.step()
    house.rotate("app.log", "number", "rename")
    with (house.folder / "app.log.1").open("a") as file:
        file.write("late\nunfinished")
    house.written["app.log"] += ["late", "unfinished"]
    house.write("app.log", 1)
    house.later()
    assert house.stored() == ["line 0 of app.log", "late", "unfinished", "line 3 of app.log"]
    house.check()


def test_what_was_rotated_before_it_was_ever_seen_is_left(house):
    (house.folder / "app.log.1").write_text("old\n")
    os.utime(house.folder / "app.log.1", (1, 1))
    house.write("app.log")
    house.step()
    house.stop()
    house.write("app.log")
    house.check()


def test_a_renamed_file_that_has_no_successor_is_read_on(house):
    house.write("app.log", 1)
    house.later()
    (house.folder / "app.log").rename(house.folder / "elsewhere")
    house.later()
    with (house.folder / "elsewhere").open("a") as file:
        file.write("more\n")
    house.later()
    assert house.stored() == ["line 0 of app.log", "more"]


@pytest.mark.parametrize("final", [False, True])
def test_logs_with_the_same_content_are_not_copies(house, final):
    for name in ("app.log", "app-1.log", "app.2.log", "web.log"):
        (house.folder / name).write_text("# started\nready\n")
    if final:
        house.shipper.drain()
    else:
        house.later()
    assert house.stored() == ["# started", "ready"] * 4


def test_a_copy_that_is_shorter_than_what_was_shipped(house):
    """A line was shipped between the copy and the truncation."""
    house.write("app.log", 5)
    house.step()
    shutil.copyfile(house.folder / "app.log", house.folder / "app-2026-01-02.log")
    house.write("app.log", 2)
    house.shipper._open._look_at = float("inf")
    house.step()
    os.truncate(house.folder / "app.log", 0)
    house.write("app.log", 2)
    house.later()
    house.end()
    assert sorted(house.stored()) == sorted(house.written["app.log"])


def test_lines_that_nobody_could_read_are_named(house):
    house.write("app.log", 2)
    house.step()
    house.stop()
    house.write("app.log", 2)
    (house.folder / "app.log").unlink()
    house.written["app.log"] = house.written["app.log"][:2]
    house.write("app.log", 2)
    house.end()
    assert sorted(house.stored()) == sorted(house.written["app.log"])
    house.stop()
    house.start()
    house.later()
    assert house.shipper.unread == {}
