"""``pelton server check exporter``: a Prometheus page whose metrics are checks, which run at each
request.

The file is that of the ``nats`` command: ``context`` and a list ``checks`` of ``name``, ``kind``, ``context``,
``reuse_connection`` and ``properties``. Properties may also have the names of the options of ``pelton server check``.
"""

from __future__ import annotations

import contextlib
import ssl
import threading
from dataclasses import dataclass, field, fields, replace
from difflib import get_close_matches
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from pelton.cli.inputs import read_text_input
from pelton.cli.server import checks
from pelton.cli.server.check_report import Report, exposition
from pelton.cli.session import Session
from pelton.cli.values import Whole
from pelton.core.base.quoting import shown
from pelton.errors import PeltonError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from pelton.client.sync import Client

_KINDS = (
    *("connection", "stream", "consumer", "message", "meta", "jetstream", "server", "kv"),
    *("credential", "request"),
)
_ENTRY = ("name", "kind", "context", "reuse_connection", "properties")
# kind -> property of the nats command -> option; others have the name of the option
_PROPERTIES: dict[str, dict[str, str]] = {
    "connection": {
        "connect_time_warning": "connect-warn",
        "connect_time_critical": "connect-critical",
        "server_rtt_warning": "rtt-warn",
        "server_rtt_critical": "rtt-critical",
        "request_rtt_warning": "req-warn",
        "request_rtt_critical": "req-critical",
    },
    "stream": {
        "stream_name": "stream",
        "sources_lag_critical": "lag-critical",
        "sources_seen_critical": "seen-critical",
        "cluster_expected_peers": "peer-expect",
        "cluster_lag_critical": "peer-lag-critical",
        "cluster_seen_critical": "peer-seen-critical",
        "messages_warn": "msgs-warn",
        "messages_critical": "msgs-critical",
    },
    "consumer": {
        "stream_name": "stream",
        "consumer_name": "consumer",
        "ack_outstanding_critical": "outstanding-ack-critical",
    },
    "message": {
        "stream_name": "stream",
        "age_warning": "age-warn",
        "content_regex": "content",
    },
    "meta": {"expect_servers": "expect"},
    "jetstream": {
        "memory_warning": "mem-warn",
        "memory_critical": "mem-critical",
        "file_warning": "store-warn",
        "file_critical": "store-critical",
        "stream_warning": "streams-warn",
        "stream_critical": "streams-critical",
        "consumers_warning": "consumers-warn",
        "check_replicas": "replicas",
    },
    "server": {
        "cpu_warning": "cpu-warn",
        "memory_warning": "mem-warn",
        "memory_critical": "mem-critical",
        "connections_warning": "conn-warn",
        "connections_critical": "conn-critical",
        "subscriptions_warning": "subs-warn",
        "subscriptions_critical": "subs-critical",
        "uptime_warning": "uptime-warn",
        "authentication_required": "auth-required",
        "tls_expire_warning": "tls-cert-warn",
        "tls_expire_critical": "tls-cert-crit",
        "jet_stream_required": "js-required",
    },
    "kv": {"values_warning": "values-warn"},
    "credential": {
        "file": "credential",
        "validity_warning": "validity-warn",
        "requires_expiry": "require-expiry",
    },
    "request": {
        "headers": "match-header",
        "response_match": "match-payload",
        "response_time_warn": "response-warn",
        "response_time_crit": "response-critical",
    },
}


@dataclass
class Check:
    """A check of the file: the words of its command line behind ``pelton server check KIND``."""

    name: str
    kind: str
    context: str
    reuse: bool
    words: list[str]
    _lasting: _Lasting | None = field(default=None, repr=False)

    def make(self, session: Session) -> Report:
        """Make the check."""
        own = replace(session)
        if self.context:
            own.context, own.server = self.context, ""
        if self.reuse and self.kind != "connection":
            self._lasting = self._lasting or _Lasting(**_values(own))
            own = self._lasting
        command: click.Command = getattr(checks, self.kind)
        found: list[Report] = []
        try:
            with command.make_context(self.kind, list(self.words), obj=own) as ctx:
                ctx.meta[checks.COLLECTED] = found
                command.invoke(ctx)
        except (click.ClickException, PeltonError, OSError, ValueError) as error:
            text = error.format_message() if isinstance(error, click.ClickException) else str(error)
            suite = "connections" if self.kind == "connection" else self.kind
            found = [Report(suite, self.name, critical=[text])]
        found[0].name = self.name
        return found[0]


def _values(session: Session) -> dict[str, Any]:
    return {each.name: getattr(session, each.name) for each in fields(session) if each.init}


class _Lasting(Session):
    """A session whose commands share one connection, which reconnects by itself."""

    _client: Client | None = None

    def connect(self, *, lasting: bool = False, live: bool = False) -> Any:
        """The connection; it stays open after the block."""
        if self._client is None or self._client.closed:
            self._client = super().connect(lasting=True)
        return contextlib.nullcontext(self._client)


def read(path: Path) -> list[Check]:
    """The checks of a file; UsageError that names the entry."""
    import yaml

    try:
        data = yaml.safe_load(read_text_input(path, encoding="utf-8"))
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise click.UsageError(f"{path}: {' '.join(str(error).split())}") from None
    if not isinstance(data, dict) or not isinstance(data.get("checks"), list):
        raise click.UsageError(f"{path}: a list `checks` is missing")
    _known(data, ("context", "checks"), str(path))
    found: list[Check] = []
    for number, entry in enumerate(data["checks"], 1):
        where = f"{path}: check {number}"
        if not isinstance(entry, dict):
            raise click.UsageError(f"{where} is no object")
        _known(entry, _ENTRY, where)
        kind = str(entry.get("kind", ""))
        if kind not in _KINDS:
            raise click.UsageError(f"{where}: there is no kind {kind!r}{_near(kind, _KINDS)}")
        name = str(entry.get("name") or kind)
        if any((each.kind, each.name) == (kind, name) for each in found):
            raise click.UsageError(f"{where}: there are two checks {kind} {name!r}")
        context = str(entry.get("context") or data.get("context") or "")
        words = list(_words(kind, entry.get("properties") or {}, where))
        found.append(Check(name, kind, context, bool(entry.get("reuse_connection")), words))
        _try(found[-1], where)
    return found


def _known(entry: Mapping[str, Any], names: Sequence[str], where: str) -> None:
    for each in entry:
        if each not in names:
            raise click.UsageError(f"{where}: unknown key {each!r}{_near(str(each), names)}")


def _near(name: str, names: Sequence[str]) -> str:
    near = get_close_matches(name, names, 1, 0.6)
    return f'; did you mean "{near[0]}"?' if near else ""


def _words(kind: str, properties: Mapping[str, Any], where: str) -> Iterator[str]:
    """The options for the properties of a check; UsageError."""
    if not isinstance(properties, dict):
        raise click.UsageError(f"{where}: the properties are no object")
    command: click.Command = getattr(checks, kind)
    options = {
        letters.removeprefix("--"): each
        for each in command.params
        if isinstance(each, click.Option) and each.name not in ("form", "namespace", "outfile")
        for letters in each.opts
    }
    theirs = _PROPERTIES.get(kind, {})
    for name, value in properties.items():
        letters = theirs.get(name) or str(name).replace("_", "-")
        option = options.get(letters)
        if option is None:
            ours = [each.replace("-", "_") for each in options if len(each) > 1]
            near = _near(str(name), [*theirs, *ours])
            raise click.UsageError(f"{where}: there is no property {name!r} of {kind}{near}")
        yield from _option(letters, option, value)


def _option(letters: str, option: click.Option, value: Any) -> Iterator[str]:
    if option.is_flag:
        yield f"--{letters}" if value else f"--no-{letters}"
    elif option.multiple:
        pairs = value.items() if isinstance(value, dict) else [str(value).partition(":")[::2]]
        for name, text in pairs:
            yield from (f"--{letters}", f"{name}:{text}")
    elif option.type.name == "duration" and isinstance(value, int | float):
        yield f"--{letters}={round(value * 1000)}ms"  # the nats command has seconds
    else:
        yield f"--{letters}={value}"


def _try(check: Check, where: str) -> None:
    """Parse the words of a check; UsageError."""
    command: click.Command = getattr(checks, check.kind)
    words = [each for each in check.words if not each.startswith("--no-") or _has(command, each)]
    check.words = words
    try:
        command.make_context(check.kind, list(words), resilient_parsing=False)
    except click.ClickException as error:
        raise click.UsageError(f"{where}: {error.format_message()}") from None


def _has(command: click.Command, letters: str) -> bool:
    return any(letters in each.secondary_opts for each in command.params)


@click.command()
@click.option(
    "--config",
    required=True,
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="YAML file with the checks.",
)
@click.option("--host", default="127.0.0.1", show_default=True, help="Address to listen on.")
@click.option("--port", type=Whole(0, 65535), default=8080, show_default=True, help="Port.")
@click.option(
    "--https-certificate", type=click.Path(exists=True, dir_okay=False), help="Serve HTTPS with it."
)
@click.option("--https-key", type=click.Path(exists=True, dir_okay=False), help="Its key.")
@click.option(
    "--namespace",
    default="nats_server_check",
    show_default=True,
    help="Beginning of the metrics' names.",
)
@click.option(
    "--outfile", hidden=True, expose_value=False, help="Accepted for scripts: metrics are served."
)
@click.pass_obj
def exporter(
    session: Session,
    config: Path,
    host: str,
    port: int,
    https_certificate: str | None,
    https_key: str | None,
    namespace: str,
) -> None:
    """Serve the checks of a file at /metrics, for Prometheus. Each request runs all of them again.

    The file is that of nats server check exporter. A check that fails is a metric status_code with 2.
    """
    if bool(https_certificate) != bool(https_key):
        raise click.UsageError("--https-certificate and --https-key go together")
    found = read(config)
    one_at_a_time = threading.Lock()

    def page() -> bytes:
        with one_at_a_time:
            return exposition([each.make(session) for each in found], namespace).encode()

    try:
        server = _Server((host, port), _handler(page))
    except OSError as error:
        raise click.ClickException(f"cannot listen on {host}:{port}: {error.strerror}") from None
    with server:
        scheme = "http"
        if https_certificate:
            context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
            context.load_cert_chain(https_certificate, https_key)
            server.context = context
            scheme = "https"
        address = f"{scheme}://{host}:{server.server_address[1]}/metrics"
        click.echo(shown(f"{len(found)} checks are served at {address}"), err=True)
        server.serve_forever()


class _Server(ThreadingHTTPServer):
    """A thread for each request; the handshake of TLS is the thread's, too."""

    daemon_threads = True
    context: ssl.SSLContext | None = None

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        request.settimeout(30)
        if self.context is not None:
            try:
                request = self.context.wrap_socket(request, server_side=True)
            except OSError:
                self.shutdown_request(request)
                return
        super().process_request_thread(request, client_address)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A reader that went away is no error."""


def _handler(page: Any) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            there = self.path.partition("?")[0] == "/metrics"
            body = page() if there else b"the metrics are at /metrics\n"
            self.send_response(200 if there else 404)
            kind = "text/plain; version=0.0.4; charset=utf-8" if there else "text/plain"
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002  # the name there
            """Write no line for a request."""

    return Handler
