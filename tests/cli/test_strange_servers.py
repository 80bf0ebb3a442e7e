"""What answers is no NATS server, or says nothing; and secrets in the wrong place are not printed."""

from __future__ import annotations

import json
import socket
import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pytest

from pelton.nkeys import USER, encode_seed, format_credentials

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from tests.cli.conftest import Ran

    Run = Callable[..., Ran]


@contextmanager
def answering(first: bytes) -> Iterator[str]:
    """A server that says something to everybody, and nothing more; its URL."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        kept: list[socket.socket] = []

        def serve() -> None:
            while True:
                try:
                    each, _ = listener.accept()
                except OSError:
                    return
                kept.append(each)
                each.sendall(first)

        threading.Thread(target=serve, daemon=True).start()
        try:
            yield f"nats://127.0.0.1:{listener.getsockname()[1]}"
        finally:
            listener.shutdown(socket.SHUT_RDWR)
            for each in kept:
                each.close()


@pytest.mark.parametrize(
    ("first", "line", "said"),
    [
        (b"HTTP/1.1 400 Bad Request\r\n\r\n", "stream ls", "this is no NATS server"),
        (b"HTTP/1.1 400 Bad Request\r\n\r\n", "account tls", "is no NATS server: it begins with b'HTTP"),
        (b"", "stream ls", "no answer in 0.1 s"),
        (b"", "account tls", "no answer from nats://127.0.0.1:"),
        (b'INFO {"server_id":"X"}\r\n', "kv ls", "no answer in 0.1 s"),
        (b"INFO nonsense\r\n", "kv ls", "bad INFO from the server"),
    ],
)  # fmt: skip
def test_a_strange_server_is_told_in_one_line(cli: Run, first: bytes, line: str, said: str) -> None:
    with answering(first) as url:
        ran = cli("-s", url, "--timeout", "100ms", *line.split())
        assert (ran.status, ran.out, ran.err.count("\n")) == (1, "", 1)
        assert said in ran.err
        ran = cli("-s", url, "--timeout", "100ms", "--json", *line.split())
        assert said in json.loads(ran.err)["error"]["message"]


def test_a_seed_in_the_wrong_place_or_misspelt_is_not_printed(cli: Run, tmp_path: Path) -> None:
    seed = encode_seed(USER, bytes(range(32)))
    creds, word = tmp_path / "user.creds", tmp_path / "word"
    creds.write_text(format_credentials("a.b.c", seed))
    word.write_text(f"x{seed}")
    information = b'INFO {"server_id":"X","nonce":"abc"}\r\n'
    with answering(information) as url:
        for given in (
            ("--seed", creds, "--jwt", "a.b.c"),
            ("--seed", seed[:-1], "--jwt", "a.b.c"),
            ("--seed", f"{seed}1", "--jwt", "a.b.c"),
            ("--seed", word),
            ("--nkey", f"{seed}\n"),
            ("--jwt", creds),
            ("--creds", word),
            ("--nkey", creds),
        ):
            ran = cli("-s", url, "--timeout", "100ms", *given, "stream", "ls")
            assert ran.status in (1, 2), given
            assert seed[5:-5] not in ran.out + ran.err, given
