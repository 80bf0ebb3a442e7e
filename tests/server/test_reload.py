"""Which settings a reload changes."""

import io

import pytest
from msgspec.structs import replace

from pelton.server.errors import ConfigError, StartError
from pelton.server.logs.log import Log
from pelton.server.reload import Reloads, changes, check_jetstream
from pelton.server.settings import RELOADABLE, Settings


def test_every_reloadable_name_is_a_setting():
    assert set(Settings.__struct_fields__) >= RELOADABLE


def test_nothing_changed_is_nothing_to_do():
    assert changes(Settings(), Settings()) == ([], [])


def test_what_can_change_is_listed_and_what_cannot_is_told():
    old = Settings()
    new = replace(
        old, debug=True, ping_interval_ns=5, port=1, max_pending=7, config_digest="x", headers=False
    )
    changed, refused = changes(old, new)
    assert changed == ["debug", "ping_interval_ns"]
    assert refused == [
        "config reload not supported for Port: old=4222, new=1",
        "config reload not supported for NoHeaderSupport: old=false, new=true",
        "config reload not supported for MaxPending: old=67108864, new=7",
    ]


class Reloaded:
    """A table over settings that are read from `fresh`."""

    def __init__(self):
        self.settings = Settings()
        self.fresh = Settings()
        self.stream = io.StringIO()
        log = Log(stream=self.stream, stamps=False)
        self.table = Reloads(self.settings, log, self.read)
        self.calls = []

    def read(self):
        if isinstance(self.fresh, Exception):
            raise self.fresh
        return self.fresh, ["a warning"]

    def log(self):
        return [line.split("] ", 1)[1] for line in self.stream.getvalue().splitlines()]


def test_rows_are_called_in_order_with_what_changed_of_theirs():
    reloaded = Reloaded()
    add = reloaded.table.add
    add(["port", "host"], lambda names: reloaded.calls.append(("first", sorted(names))))
    add(["debug"], lambda names: reloaded.calls.append(("second", sorted(names))))
    add(["trace"], lambda names: reloaded.calls.append(("third", sorted(names))))
    reloaded.fresh = Settings(port=5, host="h", debug=True, config_digest="sha256:1")
    assert reloaded.table.run() == ""
    assert reloaded.calls == [("first", ["host", "port"]), ("second", ["debug"])]
    assert (reloaded.settings.port, reloaded.settings.debug) == (5, True)
    assert reloaded.log() == [
        "[WRN] a warning",
        "[INF] Reloaded: host = h",
        "[INF] Reloaded: port = 5",
        "[INF] Reloaded: debug = true",
        "[INF] Reloaded server configuration (sha256:1)",
    ]


@pytest.mark.parametrize("failure", ["file", "refused", "prepare"])
def test_a_reload_that_fails_leaves_everything_as_it_was(failure):
    reloaded = Reloaded()

    def prepare(old, new):
        if failure == "prepare":
            raise StartError("it can't be opened")

    reloaded.table.add(["debug"], lambda names: reloaded.calls.append(names), prepare)
    reloaded.fresh = Settings(debug=True, max_payload=5)
    if failure == "file":
        reloaded.fresh = ConfigError("x.conf:1:1: nonsense")
    elif failure == "refused":
        reloaded.fresh.port = 7
    reason = reloaded.table.run()
    assert (
        reason
        == {
            "file": "x.conf:1:1: nonsense",
            "refused": "config reload not supported for Port: old=4222, new=7",
            "prepare": "it can't be opened",
        }[failure]
    )
    assert reloaded.settings == Settings()
    assert reloaded.calls == []
    assert reloaded.log() == [f"[ERR] Failed to reload server configuration: {reason}"]


def test_secrets_are_not_told():
    reloaded = Reloaded()
    reloaded.fresh = Settings(user="me", password="hush", token="psst")
    assert reloaded.table.run() == ""
    assert "hush" not in reloaded.stream.getvalue()
    assert "psst" not in reloaded.stream.getvalue()
    assert "[INF] Reloaded: authorization password" in reloaded.log()


@pytest.mark.parametrize(
    ("before", "after", "message"),
    [
        (-1, 5, "jetstream dynamic max memory and store"),
        (5, -1, "jetstream max memory and max store"),
        (5, 4, "decreasing jetstream max memory and store"),
        (5, 6, ""),
    ],
)
def test_jetstreams_limits_may_only_grow(before, after, message):
    old, new = Settings(max_file=before), Settings(max_file=after)
    if message:
        with pytest.raises(StartError, match=f"config reload not supported for {message}"):
            check_jetstream(old, new)
    else:
        check_jetstream(old, new)


def test_a_running_jetstream_stays_where_it_is():
    with pytest.raises(StartError, match="not supported for jetstream storage directory"):
        check_jetstream(Settings(), Settings(store_dir="/x"))
