"""/debug/vars: command line and memory of the process, under the names that Go gives them."""

import gc
import json
import resource
import sys
from typing import Any

import msgspec

from penstock.server.http import Answer
from penstock.server.monitor.query import Query
from penstock.server.monitor.server_state import ServerState

_SECRETS = {
    "pass",
    "auth",
    "user",
    "routes",
    "cluster",
    "cluster_listen",
}  # URLs may hold passwords


class Options(msgspec.Struct):
    """None."""


def report(server_state: ServerState, options: Options) -> dict[str, Any]:
    """What the memory is used for, as far as Python knows."""
    return {"memstats": memory(server_state), "cmdline": command_line(sys.orig_argv)}


def command_line(words: list[str]) -> list[str]:
    """The words of a command; what may be a secret in it is not told."""
    told: list[str] = []
    secret = False
    for word in words:
        name, equals, _ = word.partition("=")
        told.append("[hidden]" if secret else word)
        secret = name.lstrip("-") in _SECRETS and name.startswith("-") and not equals
        if name.lstrip("-") in _SECRETS and equals:
            told[-1] = f"{name}=[hidden]"
    return told


def answer(server_state: ServerState, query: Query) -> Answer:
    """One line for each variable."""
    body = report(server_state, Options())
    lines = ",\n".join(f'"{name}": {json.dumps(body[name])}' for name in sorted(body))
    return Answer(200, "application/json; charset=utf-8", f"{{\n{lines}\n}}\n".encode())


def memory(server_state: ServerState) -> dict[str, Any]:
    """Bytes in use and from the system; the collector's runs."""
    runs = gc.get_stats()
    return {
        "Alloc": server_state.memory_bytes(),
        "Sys": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
        "HeapObjects": len(gc.get_objects()),
        "NumGC": sum(each["collections"] for each in runs),
    }
