"""``websocket``: the listener for browsers."""

from pelton.server.config.grammar import Item
from pelton.server.config.reader import Key, Reader
from pelton.server.config.tls import tls
from pelton.server.config.values import (
    address,
    duration,
    flag,
    kind,
    port,
    secret,
    section,
    set_to,
    text,
)
from pelton.server.settings.websocket import Websocket
from pelton.server.transports.websocket.origins import parse_origin
from pelton.server.units import parse_address

_OURS = ("host", "content-length", "connection", "upgrade", "nats-no-masking")


def websocket(reader: Reader, name: str, item: Item) -> None:
    """The map ``websocket``."""
    if not isinstance(item.value, dict):
        raise ValueError(f"expected a map, got {kind(item)}")
    found = Websocket()
    reader.settings.websocket = found
    reader.section(item.value, _KEYS, "websocket.", found)
    if found.port and found.tls is None and not found.no_tls:
        reader.problem(item, "websocket requires TLS: a tls map, or no_tls: true")
    if found.user and found.token:
        reader.problem(item, "websocket: user/password and token exclude each other")


def check_websocket(reader: Reader, place: Item) -> None:
    """Checks across sections."""
    settings = reader.settings
    if settings.websocket.port and settings.users:
        for attribute in ("user", "token"):
            if getattr(settings.websocket, attribute):
                reader.problem(
                    place, f"websocket: a {attribute} and a users array exclude each other"
                )


def _origins(item: Item) -> list[str]:
    entries = item.value if isinstance(item.value, list) else [item]
    found = [text(each) for each in entries]
    for origin in found:
        parse_origin(origin)
    return found


def _headers(item: Item) -> dict[str, str]:
    if not isinstance(item.value, dict):
        raise ValueError(f"expected a map, got {kind(item)}")
    found = {}
    for key, value in item.value.items():
        if key.lower() in _OURS or key.lower().startswith("sec-websocket-"):
            raise ValueError(f'the server sets header "{key}" itself')
        shown = text(value)
        if any(ord(char) < 32 or char == ":" for char in key) or "\r" in shown or "\n" in shown:
            raise ValueError(f'"{key}" is not a valid header name')
        found[key] = shown
    return found


def _advertise(item: Item) -> str:
    value = text(item)
    parse_address(value, "", 0)
    return value


_AUTHORIZATION: dict[str, Key] = {
    "user": set_to("user", text),
    "username": set_to("user", text),
    "pass": set_to("password", secret),
    "password": set_to("password", secret),
    "token": set_to("token", secret),
    "timeout": duration("auth_timeout_ns", 1),
}

_KEYS: dict[str, Key] = {
    "listen": address("host", "port"),
    "host": set_to("host", text),
    "net": set_to("host", text),
    "port": set_to("port", port),
    "advertise": set_to("advertise", _advertise),
    "no_tls": set_to("no_tls", flag),
    "tls": tls(),
    "same_origin": set_to("same_origin", flag),
    **dict.fromkeys(
        (
            "allowed_origins",
            "allowed_origin",
            "allow_origins",
            "allow_origin",
            "origins",
            "origin",
        ),
        set_to("allowed_origins", _origins),
    ),
    "handshake_timeout": duration("handshake_timeout_ns", 1),
    "compress": set_to("compression", flag),
    "compression": set_to("compression", flag),
    "authorization": section(_AUTHORIZATION, "websocket.authorization."),
    "authentication": section(_AUTHORIZATION, "websocket.authorization."),
    "jwt_cookie": set_to("jwt_cookie", text),
    "user_cookie": set_to("user_cookie", text),
    "pass_cookie": set_to("pass_cookie", text),
    "token_cookie": set_to("token_cookie", text),
    "no_auth_user": set_to("no_auth_user", text),
    "headers": set_to("headers", _headers),
    "ping_interval": duration("ping_interval_ns", 1_000_000),
}
