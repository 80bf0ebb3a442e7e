"""Monitoring: reports on the server with nats-server's paths, arguments and field names, and metrics for
Prometheus.

Each report is a module that is loaded at its first request. It has `Options` (a msgspec Struct, also for
requests over the system account), `from_query`, and `report`, a pure function of the ServerState. Pages
that are not JSON or have their own status have `answer` instead. What may be long is made in `slices`.
"""

from collections.abc import Generator
from importlib import import_module
from types import ModuleType

from pelton.server.http import Answer, text_answer
from pelton.server.monitor.encoding import json_in_slices
from pelton.server.monitor.query import Query, QueryError, Skip
from pelton.server.monitor.server_state import ServerState
from pelton.server.monitor.slices import Slices, finish

# path -> (module, name in http_req_stats)
PATHS = {
    "/": ("index", "/"),
    "/varz": ("varz", "/varz"),
    "/connz": ("connz", "/connz"),
    "/routez": ("routez", "/routez"),
    "/gatewayz": ("gatewayz", "/gatewayz"),
    "/leafz": ("leafz", "/leafz"),
    "/subsz": ("subsz", "/subsz"),
    "/subscriptionsz": ("subsz", "/subsz"),
    "/accountz": ("accountz", "/accountz"),
    "/accstatz": ("accstatz", "/accstatz"),
    "/jsz": ("jsz", "/jsz"),
    "/healthz": ("healthz", "/healthz"),
    "/stacksz": ("stacksz", ""),
    "/ipqueuesz": ("ipqueuesz", ""),
    "/raftz": ("raftz", ""),
    "/debug/vars": ("expvarz", ""),
    "/expvarz": ("expvarz", ""),
    "/metrics": ("metrics", ""),
}
_LONG = {
    *("connz", "leafz", "subsz", "subscriptionsz", "accountz", "accstatz", "jsz", "metrics"),
}
_COUNTED_WHEN_READ = {"connz", "routez"}  # requests with bad arguments are not counted


def answer(server_state: ServerState, path: str, query: dict[str, str]) -> Answer:
    """The response to GET path?query, at once."""
    return finish(answer_in_slices(server_state, path, query))


def respond(server_state: ServerState, path: str, query: dict[str, str]) -> Answer | Slices[Answer]:
    """The response to GET path?query, or for a report that may be long, the work of making it."""
    work = answer_in_slices(server_state, path, query)
    return work if path.rpartition("/")[2] in _LONG else finish(work)


def answer_in_slices(server_state: ServerState, path: str, query: dict[str, str]) -> Slices[Answer]:
    """The response to GET path?query; it yields when the server should serve its clients."""
    base = server_state.settings.http_base_path.rstrip("/")
    if base:
        if path != base and not path.startswith(base + "/"):
            return text_answer(404, "404 page not found\n")
        path = path[len(base) :] or "/"
    found = PATHS.get(path)
    if found is None:
        return text_answer(404, "404 page not found\n")
    name, counted = found
    module = family(name)
    arguments = Query(query)
    if counted and name not in _COUNTED_WHEN_READ:
        _count(server_state, counted)
    try:
        if hasattr(module, "answer"):
            made: Answer | Slices[Answer] = module.answer(server_state, arguments)
            return (yield from made) if isinstance(made, Generator) else made
        options = module.from_query(arguments)
        if name in _COUNTED_WHEN_READ:
            _count(server_state, counted)
        body = module.report(server_state, options)
        if isinstance(body, Generator):
            body = yield from body
    except (QueryError, Skip) as problem:
        return text_answer(400, str(problem))
    return (yield from json_answer(body, arguments, getattr(module, "INDENT", 2)))


def _count(server_state: ServerState, path: str) -> None:
    server_state.requests[path] = server_state.requests.get(path, 0) + 1


def json_answer(body: object, query: Query, indent: int | None) -> Slices[Answer]:
    """The JSON; with ``callback=name``, a script that calls the function."""
    written = yield from json_in_slices(body, indent)
    callback = query.text("callback")
    if callback and all(word.isidentifier() for word in callback.split(".")):
        script = b"%b(%b)" % (callback.encode("utf-8", "replace"), written)
        return Answer(200, "application/javascript", script)
    return Answer(200, "application/json", written)


def family(name: str) -> ModuleType:
    """The module of a report."""
    return import_module(f"{__name__}.{name}")


__all__ = ["PATHS", "QueryError", "ServerState", "Skip", "answer", "family", "respond"]
