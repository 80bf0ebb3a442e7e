"""/debug/vars: command line and memory of the process, under Go's names."""

import gc
import json
import resource
import sys
from typing import Any

import msgspec

from pelton.server.http import Answer
from pelton.server.monitor.query import Query
from pelton.server.monitor.server_state import ServerState

_SECRETS = {
    "pass",
    "auth",
    "user",
    "routes",
    "cluster",
    "cluster_listen",
}  # URLs may contain passwords


class Options(msgspec.Struct):
    """Has no arguments."""


def report(server_state: ServerState, options: Options) -> dict[str, Any]:
    """The command line, and the memory as far as Python reports it."""
    return {"memstats": memory(server_state), "cmdline": command_line(sys.orig_argv)}


def command_line(words: list[str]) -> list[str]:
    """The words of the command line, without values that may be secrets."""
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
    """Memory in use and from the system, in bytes; runs of the garbage collector."""
    runs = gc.get_stats()
    return {
        "Alloc": server_state.memory_bytes(),
        "Sys": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
        "HeapObjects": len(gc.get_objects()),
        "NumGC": sum(each["collections"] for each in runs),
    }
