"""``jetstream.remotes``: origin servers, whose streams this server can follow."""

import re
from urllib.parse import urlsplit

from pelton.server.config.grammar import Item
from pelton.server.config.reader import Reader
from pelton.server.config.tls import read_tls
from pelton.server.config.values import kind, text
from pelton.server.settings import OriginServer
from pelton.server.settings.tls import Tls


def remotes(reader: Reader, name: str, item: Item) -> None:
    """A map of names to servers."""
    if not isinstance(item.value, dict):
        raise ValueError(f"expected a map of names to servers, got {kind(item)}")
    reader.settings.remotes = []
    for key, entry in item.value.items():
        if not re.fullmatch(r"[^\s.*>]+", key):
            reader.problem(
                entry,
                f'"{key}" is not a valid name of a remote: it must not contain a space, ".", "*" or ">"',
            )
        elif not isinstance(entry.value, dict):
            reader.problem(entry, f"expected a map {{url: nats://host}}, got {kind(entry)}")
        else:
            reader.settings.remotes.append(_remote(reader, key, entry.value, entry))


def _remote(reader: Reader, name: str, fields: dict[str, Item], place: Item) -> OriginServer:
    remote = OriginServer(name)
    for key, item in fields.items():
        try:
            if key.lower() == "url":
                remote.urls.append(_remote_url(item))
            elif key.lower() == "urls" and isinstance(item.value, list):
                remote.urls += [_remote_url(each) for each in item.value]
            elif key.lower() == "tls":
                remote.tls = read_tls(reader, item, clients=False)
            elif key.lower() == "ca_file":
                remote.tls = remote.tls or Tls()
                remote.tls.ca_file = text(item)
            elif key.lower() in _FIELDS:
                attribute = _FIELDS[key.lower()]
                setattr(remote, attribute, text(item))
            else:
                reader.section({key: item}, {}, "remotes.")
        except ValueError as problem:
            reader.problem(item, f"{key}: {problem}")
    if not remote.urls:
        reader.problem(place, f'remote "{name}" needs a url')
    return remote


def _remote_url(item: Item) -> str:
    value = text(item)
    url = value if "://" in value else f"nats://{value}"
    parts = urlsplit(url)
    if parts.scheme not in ("nats", "tls") or not parts.hostname:
        raise ValueError(f'expected nats://host:port or tls://host:port, got "{value}"')
    if parts.port == 0:  # ValueError when the port is not a number
        raise ValueError(f'port 0 in "{value}"')
    return url


_FIELDS = {
    "user": "user",
    "username": "user",
    "pass": "password",
    "password": "password",
    "token": "token",
}
