#!/usr/bin/env python3
"""How fast a new follower takes what its origin holds: mirrors and sources within one server.

    PYTHONPATH=src python bench/bench_follow.py
    PYTHONPATH=src python bench/bench_follow.py --messages 1000000

The origin is filled with messages of 100 bytes on ten subjects, file storage; then each follower is
made, and the time until it has everything is taken. The peer is $NATS_SERVER or nats-server in PATH.
"""

import argparse
import json
import socket
import sys
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from tests.compat.pair import RawClient
from tests.peers import available_servers, running_server

BLOCK = 2000
PAYLOAD = b"x" * 100
FOLLOWERS: dict[str, tuple[dict[str, Any], int]] = {
    "mirror": ({"mirror": {"name": "O"}}, 1),
    "source": ({"sources": [{"name": "O"}]}, 1),
    "source, one subject of ten": ({"sources": [{"name": "O", "filter_subject": "o.1"}]}, 10),
    "source with a transform": (
        {"sources": [{"name": "O", "subject_transforms": [{"src": "o.*", "dest": "t.$1"}]}]},
        1,
    ),
}


def api(client: RawClient, call: str, body: Any = None) -> Any:
    """The answer of an API call."""
    answer = client.request(f"$JS.API.{call}", b"" if body is None else json.dumps(body).encode())
    return json.loads(answer or b"{}")


def fill(port: int, messages: int) -> None:
    """Blocks of messages, each acknowledged before the next is sent."""
    with socket.create_connection(("127.0.0.1", port)) as connection:
        connection.recv(4096)
        connection.sendall(b'CONNECT {"verbose":false}\r\nSUB r 1\r\n')
        for start in range(0, messages, BLOCK):
            lines = [b"PUB o.%d 100\r\n%s\r\n" % (n % 10, PAYLOAD) for n in range(BLOCK - 1)]
            lines.append(b"PUB o.%d r 100\r\n%s\r\n" % ((start + BLOCK - 1) % 10, PAYLOAD))
            connection.sendall(b"".join(lines))
            while b"MSG" not in connection.recv(65536):
                continue


def follow(client: RawClient, fields: dict[str, Any], count: int) -> float:
    """Messages per second into a new follower."""
    start = time.perf_counter()
    api(client, "STREAM.CREATE.F", {"name": "F", **fields})
    while api(client, "STREAM.INFO.F")["state"]["messages"] < count:
        time.sleep(0.002)
    seconds = time.perf_counter() - start
    api(client, "STREAM.DELETE.F")
    return count / seconds


def main() -> None:
    """Both servers, one after the other."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--messages", type=int, default=300_000)
    messages = parser.parse_args().messages // BLOCK * BLOCK
    for kind in available_servers():
        with running_server(kind) as server:
            client = RawClient(server)
            api(client, "STREAM.CREATE.O", {"name": "O", "subjects": ["o.*"]})
            fill(server.port, messages)
            for name, (fields, part) in FOLLOWERS.items():
                rate = follow(client, fields, messages // part)
                print(f"{kind:12} {name:28} {rate:12,.0f} msgs/s")


if __name__ == "__main__":
    main()
