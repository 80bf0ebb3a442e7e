"""Keyword arguments as the settings of a server."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypedDict

from pelton.client.base.durations import to_nanoseconds
from pelton.server.errors import OptionError
from pelton.server.options import parse_options
from pelton.server.startup import settings_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pelton.client.base.durations import Duration
    from pelton.server.settings import Settings

LOOPBACK = "127.0.0.1"


class ServerOptions(TypedDict, total=False):
    """More options of an embedded server; durations are seconds, a timedelta or text ("30s").

    Example::

        options: ServerOptions = {"domain": "edge", "sync_interval": "1s"}
        server = pelton.embedded.Server(**options)

    host: the address of the port (127.0.0.1).
    jetstream: False: no streams, no store.
    sync_interval: how often file streams are fsynced; "always" (the default): before each ack.
    domain: the JetStream domain.
    user, password: credentials that clients must present; a client of ``connect()`` too.
    token: the same as one token.
    max_payload: bytes of a message (1 MiB).
    max_memory: bytes of all memory streams together.
    max_storage: bytes of all file streams together.
    max_connections: clients at a time (65536).
    ping_interval: how often silent clients are pinged (2 minutes).
    write_deadline: how long a client may take no bytes before it is disconnected (10 seconds).
    arguments: command line options of ``pelton-server``, for everything else.
    """

    host: str
    jetstream: bool
    sync_interval: Duration
    domain: str
    user: str
    password: str
    token: str
    max_payload: int
    max_memory: int
    max_storage: int
    max_connections: int
    ping_interval: Duration
    write_deadline: Duration
    arguments: Sequence[str]


_PLAIN = {
    "host": "host",
    "jetstream": "jetstream",
    "domain": "domain",
    "user": "user",
    "password": "password",
    "token": "token",
    "max_payload": "max_payload",
    "max_memory": "max_memory",
    "max_storage": "max_file",
    "max_connections": "max_connections",
}
_DURATIONS = {
    "sync_interval": "sync_interval_ns",
    "ping_interval": "ping_interval_ns",
    "write_deadline": "write_deadline_ns",
}


def make_settings(
    port: int | None, store: str, config: str, name: str, options: Mapping[str, Any]
) -> tuple[Settings, list[str]]:
    """(settings, warnings) of a start. ``store`` "": none.

    Raises TypeError for an unknown option, ValueError for a bad value, and StartError for what
    ``pelton-server`` would refuse.
    """
    unknown = sorted(options.keys() - ServerOptions.__optional_keys__)
    if unknown:
        raise TypeError(
            f"there is no option {', '.join(unknown)}: see help(pelton.embedded.ServerOptions)"
        )
    if port is not None and not 0 <= port <= 65535:
        raise ValueError(f"port must be from 0 (any free one) to 65535, or None, got {port}")
    parsed = parse_options(list(options.get("arguments", ())))
    if parsed.action != "run":
        raise OptionError(
            "an embedded server takes options of a start only: no -t, -v, -h or --signal"
        )
    given = parsed.given
    given.setdefault("host", LOOPBACK)
    given["port"] = port or -1
    if options.get("jetstream", True):
        given["jetstream"] = True
        if store:
            given["store_dir"] = store
    if name:
        given["server_name"] = name
    if config:
        parsed.config = config
    for option, setting in _PLAIN.items():
        if option in options:
            given[setting] = options[option]
    for option, setting in _DURATIONS.items():
        if option in options:
            given[setting] = _nanoseconds(option, options[option])
    if "password" in given and "user" not in given:
        raise ValueError("password is given without user")
    if "token" in given and "user" in given:
        raise ValueError("give user and password, or a token, not both")
    return settings_of(parsed)


def _nanoseconds(option: str, value: Any) -> int:
    if option == "sync_interval" and value == "always":
        return 0
    ns = to_nanoseconds(value)
    if ns <= 0:
        raise ValueError(f"{option} must be above 0, got {value!r}")
    return int(ns)
