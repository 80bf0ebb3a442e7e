"""The index page with links to all reports."""

from html import escape

from pelton.server.http import Answer
from pelton.server.monitor.query import Query
from pelton.server.monitor.server_state import ServerState
from pelton.server.settings import COMPATIBLE_VERSION

_LINKS = {
    "General": "/varz",
    "JetStream": "/jsz",
    "Connections": "/connz",
    "Accounts": "/accountz",
    "Account Stats": "/accstatz",
    "Subscriptions": "/subsz",
    "Routes": "/routez",
    "LeafNodes": "/leafz",
    "Gateways": "/gatewayz",
    "Raft Groups": "/raftz",
    "Health Probe": "/healthz",
    "Metrics": "/metrics",
    "Expvar": "/debug/vars",
}


def answer(server_state: ServerState, query: Query) -> Answer:
    """The page as HTML."""
    base = server_state.settings.http_base_path.rstrip("/")
    links = "".join(
        f'<li><a href=".{base}{path}">{name}</a> <code>{path}</code></li>'
        for name, path in _LINKS.items()
    )
    name = escape(server_state.server_name)
    page = (
        f"<!doctype html><html lang=en><title>{name}</title><h1>pelton-server</h1>"
        f"<p>Server {name}, compatible with nats-server {COMPATIBLE_VERSION}</p>"
        f"<ul>{links}</ul></html>"
    )
    return Answer(200, "text/html; charset=utf-8", page.encode())
