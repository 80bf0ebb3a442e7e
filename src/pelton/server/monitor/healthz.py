"""/healthz: whether the server, an account's JetStream, a stream or a consumer works."""

import json
import os
from typing import Any

import msgspec

from pelton.server.http import Answer
from pelton.server.monitor.encoding import to_json
from pelton.server.monitor.query import Query
from pelton.server.monitor.server_state import ServerState, engine_account

_OK, _BAD, _NOT_FOUND, _UNAVAILABLE = 200, 400, 404, 503


class Options(msgspec.Struct, rename="kebab"):
    """The part to check; `details`: list all errors."""

    js_enabled: bool = False
    js_enabled_only: bool = False
    js_server_only: bool = False
    js_meta_only: bool = False
    account: str = ""
    stream: str = ""
    consumer: str = ""
    details: bool = False


class HealthProblem(msgspec.Struct):
    """An error, and the HTTP status for it; 0: the status for a part that is unavailable."""

    kind: str
    error: str
    account: str = ""
    stream: str = ""
    consumer: str = ""
    status: int = 0
    said: str = "unavailable"  # the status text without details


def from_query(query: Query) -> Options:
    """Parse the query. Raises QueryError."""
    return Options(
        js_enabled=query.flag("js-enabled"),
        js_enabled_only=query.flag("js-enabled-only"),
        js_server_only=query.flag("js-server-only"),
        js_meta_only=query.flag("js-meta-only"),
        details=query.flag("details"),
        account=query.text("account"),
        stream=query.text("stream"),
        consumer=query.text("consumer"),
    )


def answer(server_state: ServerState, query: Query) -> Answer:
    """One line of JSON, and the HTTP status for it. Raises QueryError."""
    body = report(server_state, from_query(query))
    status = body.pop("status_code")
    if "error" in body:
        server_state.warn(f"Healthcheck failed: {_quoted(body['error'])}")
    elif "errors" in body:
        server_state.warn(f"Healthcheck failed: {len(body['errors'])} errors")
    return Answer(status, "application/json", to_json(body, None).encode())


def report(server_state: ServerState, options: Options) -> dict[str, Any]:
    """status, status_code, and the errors."""
    found = list(_look(server_state, options))
    if not found:
        return {"status": "ok", "status_code": _OK}
    status = found[0].status or _UNAVAILABLE
    if not options.details:
        return {"status": found[0].said, "status_code": status, "error": found[0].error}
    return {"status": "error", "status_code": status, "errors": [_row(each) for each in found]}


def _row(each: HealthProblem) -> dict[str, str]:
    row = {"type": each.kind}
    for name in ("account", "stream", "consumer", "error"):
        if getattr(each, name):
            row[name] = getattr(each, name)
    return row


def _look(server_state: ServerState, options: Options) -> list[HealthProblem]:
    if options.stream and not options.account:
        return [_bad('"account" must not be empty when checking stream health')]
    if options.consumer and not options.stream:
        return [_bad('"stream" must not be empty when checking consumer health')]
    if options.js_server_only or not server_state.settings.jetstream:
        return []
    if server_state.jetstream() is None:
        return [HealthProblem("JETSTREAM", "JetStream not enabled", status=_UNAVAILABLE)]
    if options.js_enabled or options.js_enabled_only:
        return []
    jetstream = server_state.jetstream()
    if jetstream is not None and (recovering := jetstream.recovering()):
        return [HealthProblem("JETSTREAM", recovering)]
    if options.account:
        return _look_at_account(server_state, options)
    accounts = jetstream.accounts() if jetstream is not None else []
    return [one for each in accounts for one in _troubles(each)]


def _bad(error: str) -> HealthProblem:
    return HealthProblem("BAD_REQUEST", error, status=_BAD, said="error")


def _look_at_account(server_state: ServerState, options: Options) -> list[HealthProblem]:
    name, stream, consumer = options.account, options.stream, options.consumer
    account = engine_account(server_state, name)
    jetstream = server_state.jetstream()
    # an account that never had a stream has no folder, and is not found
    folder = os.path.join(jetstream.folder, name) if jetstream is not None else ""
    if account is None or not (account.streams or account.offline or os.path.isdir(folder)):
        error = f"JetStream account {_quoted(name)} not found"
        return [HealthProblem("ACCOUNT", error, name, status=_NOT_FOUND)]
    if not stream:
        return _troubles(account)
    where = f"on account {_quoted(name)}"
    entry = account.streams.get(stream)
    if entry is None and stream in account.offline:
        return [_offline(name, stream, account.offline[stream].reason)]
    if entry is None:
        error = f"JetStream stream {_quoted(stream)} not found {where}"
        return [HealthProblem("STREAM", error, name, stream, status=_NOT_FOUND)]
    found = list(_broken(name, [entry]))
    if consumer and consumer not in entry.consumers:
        error = (
            f"JetStream consumer {_quoted(consumer)} not found for stream {_quoted(stream)} {where}"
        )
        found = [HealthProblem("CONSUMER", error, name, stream, consumer, status=_NOT_FOUND)]
    return found


def _troubles(account: Any) -> list[HealthProblem]:
    found = _broken(account.name, account.streams.values())
    for name, each in sorted(account.offline.items()):
        found.append(_offline(account.name, name, each.reason))
    for name, entry in sorted(account.streams.items()):
        for consumer, why in sorted(entry.offline.items()):
            error = f"JetStream consumer '{account.name} > {name} > {consumer}' is offline: {why}"
            found.append(HealthProblem("CONSUMER", error, account.name, name, consumer))
    return found


def _offline(account: str, stream: str, reason: str) -> HealthProblem:
    error = f"JetStream stream '{account} > {stream}' is offline: {reason}"
    return HealthProblem("STREAM", error, account, stream)


def _broken(account: str, entries: Any) -> list[HealthProblem]:
    return [
        HealthProblem(
            "STREAM",
            f"JetStream stream '{account} > {entry.config.name}' write error: {entry.core.failure}",
            account,
            entry.config.name,
        )
        for entry in entries
        if entry.core.failure
    ]


def _quoted(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)
