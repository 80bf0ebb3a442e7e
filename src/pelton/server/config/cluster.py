"""``cluster`` and ``gateway``: keys that need other members are refused, the server's own name and addresses
are kept.

A server that ignored its routes would accept messages and not forward them, which is worse than a
server that does not start. Without routes, a cluster name and a port for routes have no effect.
"""

from urllib.parse import urlsplit

from pelton.server.config.grammar import Item
from pelton.server.config.operations import taken
from pelton.server.config.reader import Key, Reader
from pelton.server.config.values import address, kind, port, section, set_to, text
from pelton.server.settings import Settings

_HERE = {"localhost", "127.0.0.1", "::1", "0.0.0.0", "::", ""}
DEFAULT_CLUSTER_PORT = 6222


def _name(item: Item) -> str:
    value = text(item)
    if any(c.isspace() for c in value):
        raise ValueError("a cluster name must not contain spaces")
    return value


def routes_elsewhere(settings: Settings, routes: list[str]) -> list[str]:
    """The routes to other servers: all except those to this server's own cluster address."""
    own = _HERE | {settings.cluster_host, settings.server_name}
    found: list[str] = []
    for route in routes:
        parts = urlsplit(route if "://" in route else f"nats://{route}")
        there = parts.port or DEFAULT_CLUSTER_PORT  # ValueError when the port is not a number
        if (parts.hostname or "") not in own or there != settings.cluster_port:
            found.append(f"{parts.hostname}:{there}")
    return found


def refusal(others: list[str]) -> str:
    """The error of a server with these routes."""
    return (
        f"routes to other servers ({', '.join(others)}) are not served: this is a server of its own; "
        "leave routes out, or connect it to a cluster as a leaf node (leafnodes.remotes)"
    )


def _routes(reader: Reader, name: str, item: Item) -> None:
    if not isinstance(item.value, list):
        raise ValueError(f"expected an array of URLs, got {kind(item)}")
    reader.settings.cluster_routes = [text(each) for each in item.value]


def cluster(reader: Reader, name: str, item: Item) -> None:
    """The map ``cluster``."""
    settings = reader.settings
    settings.cluster_port = DEFAULT_CLUSTER_PORT
    section(_CLUSTER, "cluster.")(reader, name, item)
    others = routes_elsewhere(settings, settings.cluster_routes)
    if others:
        raise ValueError(refusal(others))
    reader.warn(
        item,
        f"{name}: the server does not support routes and runs as a single server under this name",
    )


def _port(reader: Reader, name: str, item: Item) -> None:
    reader.settings.cluster_port = port(item)


def gateway(reader: Reader, name: str, item: Item) -> None:
    """The map ``gateway``: always refused."""
    raise ValueError(
        "the server does not support gateways; "
        "connect it to a cluster as a leaf node (leafnodes.remotes)"
    )


def mqtt(reader: Reader, name: str, item: Item) -> None:
    """The map ``mqtt``: always refused."""
    raise ValueError("the server does not support MQTT; remove it")


_CLUSTER: dict[str, Key] = {
    "name": set_to("cluster_name", _name),
    "listen": address("cluster_host", "cluster_port"),
    "port": _port,
    "host": set_to("cluster_host", text),
    "net": set_to("cluster_host", text),
    "routes": _routes,
    # Settings of connections between members; a single server has none.
    **dict.fromkeys(
        (
            "authorization",
            "tls",
            "cluster_advertise",
            "advertise",
            "no_advertise",
            "connect_retries",
            "connect_backoff",
            "permissions",
            "pool_size",
            "accounts",
            "compression",
            "ping_interval",
            "ping_max",
            "write_deadline",
            "write_timeout",
        ),
        taken,
    ),
}
