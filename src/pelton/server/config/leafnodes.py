"""``leafnodes``: the listener for leaf nodes, and the remotes: hubs that this server connects to."""

import re
from urllib.parse import urlsplit

from pelton.core.protocol.subjects import valid
from pelton.server.config.grammar import Item
from pelton.server.config.reader import Key, Reader
from pelton.server.config.tls import tls
from pelton.server.config.values import address, duration, flag, kind, port, secret, set_to, text
from pelton.server.settings.leafnodes import DEFAULT_PORT, LeafNodes, LeafRemote
from pelton.server.settings.users import User

_OLDEST = (2, 8, 0)
_MODES = {
    **dict.fromkeys(("not supported", "not_supported"), ""),
    **dict.fromkeys(("off", "disabled"), "off"),
    "accept": "accept",
    **dict.fromkeys(("on", "enabled", "auto", "s2_auto"), "s2_auto"),
    **dict.fromkeys(("uncompressed", "s2_uncompressed"), "s2_uncompressed"),
    **dict.fromkeys(("fast", "s2_fast"), "s2_fast"),
    **dict.fromkeys(("better", "s2_better"), "s2_better"),
    **dict.fromkeys(("best", "s2_best"), "s2_best"),
}


def leafnodes(reader: Reader, name: str, item: Item) -> None:
    """The map ``leafnodes``."""
    if not isinstance(item.value, dict):
        raise ValueError(f"expected a map, got {kind(item)}")
    found = LeafNodes()
    reader.section(item.value, _KEYS, "leafnodes.", target=found)
    reader.settings.leafnodes = found


def _authorization(reader: Reader, name: str, item: Item) -> None:
    if not isinstance(item.value, dict):
        raise ValueError(f"expected a map, got {kind(item)}")
    reader.section(item.value, _AUTHORIZATION, "leafnodes.authorization.")
    found: LeafNodes = reader.target
    if found.users and found.user:
        raise ValueError("can not have a single user/pass and a users array")
    if found.users and found.nkey:
        raise ValueError("can not have a single nkey and a users array")


def _users(reader: Reader, name: str, item: Item) -> None:
    if not isinstance(item.value, list):
        raise ValueError(f"expected an array of users, got {kind(item)}")
    users: list[User] = []
    for entry in item.value:
        user = User()
        if not isinstance(entry.value, dict):
            reader.problem(entry, f"expected a user as a map, got {kind(entry)}")
            continue
        reader.section(entry.value, _USER, "leafnodes.authorization.users.", target=user)
        if any(user.name == other.name for other in users):
            reader.problem(
                entry, f'duplicate user "{user.name}" detected in leafnode authorization'
            )
        users.append(user)
    reader.target.users = users


def _public_nkey(item: Item) -> str:
    value = text(item)
    if not re.fullmatch(r"U[A-Z2-7]{55}", value):
        raise ValueError("not a valid public nkey for leafnode authorization")
    return value


def _version(item: Item) -> str:
    value = text(item)
    found = re.match(r"v?(\d+)\.(\d+)\.(\d+)", value)
    if found is None:
        raise ValueError(f'invalid minimum version "{value}"')
    if tuple(int(part) for part in found.groups()) < _OLDEST:
        raise ValueError("the minimum version should be at least 2.8.0")
    return value


def _compression(reader: Reader, name: str, item: Item) -> None:
    """A compression mode, or a map with one."""
    value = item.value
    if isinstance(value, dict):
        mode = value.get("mode")
        value = mode.value if mode is not None else "s2_auto"
    if isinstance(value, bool):
        value = "on" if value else "off"
    if not isinstance(value, str) or value.lower() not in _MODES:
        raise ValueError(f'unknown compression mode "{value}"')
    reader.target.compression = _MODES[value.lower()]


def _remotes(reader: Reader, name: str, item: Item) -> None:
    if not isinstance(item.value, list):
        raise ValueError(f"expected an array of remotes, got {kind(item)}")
    remotes: list[LeafRemote] = []
    for entry in item.value:
        if not isinstance(entry.value, dict):
            reader.problem(entry, f"expected a remote as a map, got {kind(entry)}")
            continue
        remote = LeafRemote()
        reader.section(entry.value, _REMOTE, "leafnodes.remotes.", target=remote)
        if not remote.urls:
            reader.problem(entry, "a remote needs a url")
        elif len({url.startswith("ws") for url in remote.urls}) > 1:
            reader.problem(
                entry,
                "remote leaf node configuration cannot have a mix of websocket "
                "and non-websocket urls",
            )
        if remote.credentials and remote.nkey:
            reader.problem(entry, "a remote can't have both credentials and an nkey")
        if any(_same(remote, other) for other in remotes):
            reader.problem(entry, "the same remote is defined twice")
        remotes.append(remote)
    reader.target.remotes = remotes


def _same(a: LeafRemote, b: LeafRemote) -> bool:
    return (a.urls, a.account, a.credentials, a.nkey) == (b.urls, b.account, b.credentials, b.nkey)


def _url(item: Item) -> str:
    value = text(item)
    url = value if "://" in value else f"nats://{value}"
    parts = urlsplit(url)
    if not parts.hostname:
        raise ValueError("expected nats://host:port, tls://host:port, ws:// or wss://")
    if parts.port is None:  # ValueError when the port is not a number
        port_number = 443 if parts.scheme == "wss" else 80 if parts.scheme == "ws" else DEFAULT_PORT
        netloc = f"{parts.netloc}:{port_number}"
        return parts._replace(netloc=netloc).geturl()
    return url


def _urls(item: Item) -> list[str]:
    if isinstance(item.value, list):
        return list(dict.fromkeys(_url(each) for each in item.value))
    return [_url(item)]


def _subjects(item: Item) -> list[str]:
    found = [text(each) for each in (item.value if isinstance(item.value, list) else [item])]
    for subject in found:
        if not valid(subject):
            raise ValueError(f'subject "{subject}" is not a valid subject')
    return found


def _seed(item: Item) -> str:
    value = text(item)
    if not re.fullmatch(r"SU[A-Z2-7]{56}", value):
        raise ValueError("expected the seed of a user nkey")
    return value


_USER: dict[str, Key] = {
    **dict.fromkeys(("user", "username"), set_to("name", text)),
    **dict.fromkeys(("pass", "password"), set_to("password", secret)),
    "account": set_to("account", text),
    "proxy_required": set_to("proxy_required", flag),
}

_AUTHORIZATION: dict[str, Key] = {
    **dict.fromkeys(("user", "username"), set_to("user", text)),
    **dict.fromkeys(("pass", "password"), set_to("password", secret)),
    "nkey": set_to("nkey", _public_nkey),
    "account": set_to("account", text),
    "timeout": duration("auth_timeout_ns", 1),
    "users": _users,
}

_REMOTE: dict[str, Key] = {
    **dict.fromkeys(("url", "urls"), set_to("urls", _urls)),
    **dict.fromkeys(("account", "local"), set_to("account", text)),
    **dict.fromkeys(("creds", "credentials"), set_to("credentials", text)),
    **dict.fromkeys(("nkey", "seed"), set_to("nkey", _seed)),
    "tls": tls(clients=False),
    "hub": set_to("hub", flag),
    **dict.fromkeys(("deny_imports", "deny_import"), set_to("deny_imports", _subjects)),
    **dict.fromkeys(("deny_exports", "deny_export"), set_to("deny_exports", _subjects)),
    **dict.fromkeys(("no_randomize", "dont_randomize"), set_to("no_randomize", flag)),
    **dict.fromkeys(("isolate", "isolate_leafnode_interest"), set_to("isolate", flag)),
    "request_isolation": set_to("request_isolation", flag),
    "ignore_discovered_servers": set_to("ignore_discovered", flag),
    "disabled": set_to("disabled", flag),
    "dial_timeout": duration("dial_timeout_ns", 1),
    "first_info_timeout": duration("first_info_timeout_ns", 1),
    "compression": _compression,
    **dict.fromkeys(
        ("ws_compress", "ws_compression", "websocket_compress", "websocket_compression"),
        set_to("ws_compression", flag),
    ),
    **dict.fromkeys(("ws_no_masking", "websocket_no_masking"), set_to("ws_no_masking", flag)),
}

_KEYS: dict[str, Key] = {
    "listen": address("host", "port"),
    **dict.fromkeys(("host", "net"), set_to("host", text)),
    "port": set_to("port", port),
    "authorization": _authorization,
    "tls": tls(),
    "remotes": _remotes,
    **dict.fromkeys(
        ("reconnect", "reconnect_delay", "reconnect_interval"), duration("reconnect_ns", 1)
    ),
    "dial_timeout": duration("dial_timeout_ns", 1),
    **dict.fromkeys(("advertise", "leafnode_advertise"), set_to("advertise", text)),
    "no_advertise": set_to("no_advertise", flag),
    **dict.fromkeys(("min_version", "minimum_version"), set_to("min_version", _version)),
    **dict.fromkeys(("isolate", "isolate_leafnode_interest"), set_to("isolate", flag)),
    "compression": _compression,
}
