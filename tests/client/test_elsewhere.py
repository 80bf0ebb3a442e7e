"""Client and command line on other systems than Linux: all that Windows or macOS lack is hidden."""

from __future__ import annotations

import os
import select
import socket
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from pelton.client.sync.locks import ERR, IN, OUT, READABLE, WRITABLE, Bell, SelectPoll

if TYPE_CHECKING:
    from tests.peers import ServerProcess


def run(*arguments: str, pure: bool) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *arguments],
        env=os.environ | {"PELTON_PURE": str(int(pure))},
        capture_output=True,
        text=True,
        check=False,
        timeout=240,
    )


@pytest.mark.slow
@pytest.mark.parametrize("pure", [False, True], ids=["compiled", "plain"])
def test_client_and_commands_need_nothing_of_linux(server: ServerProcess, pure: bool) -> None:
    done = run("-m", "tests.client.elsewhere", server.url, pure=pure)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.endswith("done\n")


@pytest.mark.parametrize(
    "words",
    [
        ["pelton.server"],
        ["pelton.cli", "serve"],
        ["pelton.cli", "bench", "pub", "a"],
        ["pelton.cli", "store", "check", "."],
        ["pelton.cli", "stream", "ls", "--store", "."],
    ],
)
def test_what_needs_the_server_says_so_in_one_line(words: list[str]) -> None:
    done = run("-m", *words, pure=True)
    assert done.returncode == 1
    [line] = done.stderr.splitlines()
    assert line.endswith("the server is compiled, and PELTON_PURE=1 hides what is: unset it")
    assert done.stdout == ""


def test_select_stands_in_for_poll() -> None:
    one, other = socket.socketpair()
    with one, other:
        poll = SelectPoll()
        poll.register(one, READABLE)
        assert poll.poll(0) == []
        poll.modify(one, READABLE | WRITABLE)
        assert poll.poll(0) == [(one.fileno(), OUT)]
        other.send(b"x")
        assert poll.poll(1000) == [(one.fileno(), IN | OUT)]
        poll.modify(one, READABLE)
        assert poll.poll(1000) == [(one.fileno(), IN)]
        poll.unregister(one)
        poll.register(other, READABLE)
        assert poll.poll(0) == []
        one.close()
        assert poll.poll(1000) == [(other.fileno(), IN)]
    assert (IN, OUT, ERR) == (select.POLLIN, select.POLLOUT, select.POLLERR)


def test_a_bell_without_eventfd(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(os, "eventfd")
    bell = Bell()
    poll = SelectPoll()
    poll.register(bell, READABLE)
    assert poll.poll(0) == []
    bell.ring()
    bell.ring()
    assert poll.poll(1000) == [(bell.fileno(), IN)]
    bell.hear()
    assert poll.poll(0) == []
    bell.hear()
    bell.close()
    bell.ring()
    bell.close()
    assert bell.fileno() == -1
