"""The configuration file: which keys there are, what each may hold, and where its value goes in the
Settings.

Knows nothing of the file's grammar (``grammar``) nor of what settings do. All problems of a file
are reported at once, one line each, with file, line and column.
"""

import hashlib
import os
import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any
from urllib.parse import urlsplit

from penstock.server.errors import ConfigError
from penstock.server.grammar import Item, Tree, parse
from penstock.server.settings import RemoteServer, Settings, User
from penstock.server.units import SECOND_NS, parse_address, parse_duration

Convert = Callable[[Item], Any]

_BCRYPT = re.compile(r"\$2[abxy]\$\d{2}\$.*")
_MIN_LAME_DUCK_NS = 30 * SECOND_NS


def load_config(path: str, settings: Settings | None = None) -> tuple[Settings, list[str]]:
    """Read a configuration file: (settings, warnings). ConfigError lists every problem in it."""
    try:
        text = _read(path)
    except (OSError, UnicodeDecodeError) as problem:
        reason = getattr(problem, "strerror", None) or "it is not UTF-8 text"
        raise ConfigError(f"can't read configuration file {path}: {reason}") from None
    found, warnings = read_config(text, path, settings, os.environ)
    found.config_file = path
    return found, warnings


def read_config(
    text: str,
    file: str = "config",
    settings: Settings | None = None,
    environ: Mapping[str, str] | None = None,
) -> tuple[Settings, list[str]]:
    """As load_config, of a text; includes are read from disk, relative to the file's folder."""
    tree = parse(text, file, environ=environ, read_include=_read_include)
    reader = _Reader(tree, replace(settings) if settings is not None else Settings())
    reader.section(tree.items, _TOP, "")
    if not reader.problems:
        reader.check_whole(tree.items)
    if reader.problems:
        raise ConfigError("\n".join(reader.problems))
    reader.settings.config_digest = "sha256:" + hashlib.sha256(text.encode()).hexdigest()
    return reader.settings, reader.warnings


def _read(path: str) -> str:
    with open(path, encoding="utf-8") as file:
        return file.read()


def _read_include(including: str, path: str) -> tuple[str, str]:
    whole = os.path.join(os.path.dirname(including), path)
    return whole, _read(whole)


class _Reader:
    """Walks a Tree along a section table and fills Settings."""

    def __init__(self, tree: Tree, settings: Settings) -> None:
        self.tree = tree
        self.settings = settings
        self.problems: list[str] = []
        self.warnings: list[str] = []

    def section(self, items: dict[str, Item], table: "Mapping[str, _Key]", where: str) -> None:
        for name, item in items.items():
            key = table.get(name.lower())
            if key is not None:
                self.apply(key, name, item)
            elif not self.tree.is_variable(item):
                unserved = (
                    where == "" and name.lower() in _NOT_SERVED
                ) or f"{where}{name.lower()}" in _NOT_SERVED
                self.problem(
                    item,
                    f'"{name}" is a nats-server setting that this version does not serve; remove it'
                    if unserved
                    else f'unknown field "{name}"',
                )

    def apply(self, key: "_Key", name: str, item: Item) -> None:
        try:
            key(self, name, item)
        except ValueError as problem:
            self.problem(item, f"{name}: {problem}")

    def problem(self, item: Item, text: str) -> None:
        self.problems.append(f"{item.place}: {text}")

    def check_whole(self, items: dict[str, Item]) -> None:
        """What depends on several keys."""
        settings = self.settings
        place = next(iter(items.values())) if items else Item("", "config", 1, 1)
        named = {name.lower(): item for name, item in items.items()}
        auth = named.get("authorization", place)
        if settings.users and (settings.user or settings.token):
            self.problem(
                auth, "authorization: a single user or token and a users array exclude each other"
            )
        if settings.user and settings.token:
            self.problem(auth, "authorization: user/password and token exclude each other")
        if settings.password and not settings.user:
            self.problem(auth, "authorization: a password needs a user")
        if settings.max_payload > settings.max_pending:
            self.problem(
                named.get("max_payload", place),
                f"max_payload ({settings.max_payload}) can't be larger than "
                f"max_pending ({settings.max_pending})",
            )
        if settings.lame_duck_grace_period_ns >= settings.lame_duck_duration_ns:
            self.problem(
                named.get("lame_duck_grace_period", place),
                "lame_duck_grace_period has to be shorter than lame_duck_duration",
            )


_Key = Callable[[_Reader, str, Item], None]


# -- converters: an Item's value as the type a key wants, or ValueError with what was expected


def _text(item: Item) -> str:
    if isinstance(item.value, str):
        return item.value
    # Names, passwords and paths may look like numbers.
    if isinstance(item.value, int | float) and not isinstance(item.value, bool):
        return str(item.value)
    raise ValueError(f"expected a text, got {_kind(item)}")


def _secret(item: Item) -> str:
    text = _text(item)
    if _BCRYPT.fullmatch(text):
        raise ValueError(
            "bcrypt hashes are not supported by this version; "
            "use a plain secret, for example from $VARIABLE"
        )
    return text


def _name(item: Item) -> str:
    text = _text(item)
    if not text or any(c.isspace() for c in text):
        raise ValueError("a server name is not empty and has no spaces")
    return text


def _domain(item: Item) -> str:
    text = _text(item)
    if not re.fullmatch(r"[^\s.*>]+", text):
        raise ValueError('a domain is not empty and has no space, ".", "*" or ">"')
    return text


def _flag(item: Item) -> bool:
    if isinstance(item.value, bool):
        return item.value
    raise ValueError(f"expected true or false, got {_kind(item)}")


def _whole(item: Item) -> int:
    if isinstance(item.value, int) and not isinstance(item.value, bool):
        return item.value
    raise ValueError(f"expected a whole number, got {_kind(item)}")


def _between(low: int, high: int) -> Convert:
    def convert(item: Item) -> int:
        number = _whole(item)
        if not low <= number <= high:
            raise ValueError(f"{number} is not between {low} and {high}")
        return number

    return convert


def _limit_size(item: Item) -> int:
    """jetstream sizes: a quoted one must end in K, M, G or T, in 1024s."""
    if isinstance(item.value, str):
        found = re.fullmatch(r"(\d+)([KMGT])", item.value)
        if found is None:
            raise ValueError("sizes defined as strings must end in K, M, G, T")
        scale: int = 1024 ** ("KMGT".index(found[2]) + 1)
        return int(found[1]) * scale
    return _whole(item)


def _kind(item: Item) -> str:
    value = item.value
    if isinstance(value, dict):
        return "a map"
    if isinstance(value, list):
        return "an array"
    if isinstance(value, bool):
        return "true" if value else "false"
    return f'"{value}"' if isinstance(value, str) else str(value)


# -- what a key does


def _set(attribute: str, convert: Convert) -> _Key:
    def apply(reader: _Reader, name: str, item: Item) -> None:
        setattr(reader.settings, attribute, convert(item))

    return apply


def _duration(attribute: str, low_ns: int = 0) -> _Key:
    """A Go duration; a bare whole number is taken as seconds, with a warning."""

    def apply(reader: _Reader, name: str, item: Item) -> None:
        number = isinstance(item.value, int | float) and not isinstance(item.value, bool)
        if number and item.word[-1:] == "m":
            # For the grammar `2m` is two million; nobody who writes it here means that.
            ns = parse_duration(item.word)
        elif isinstance(item.value, int | float) and number:
            ns = round(item.value * SECOND_NS)
            if attribute != "auth_timeout_ns":
                reader.warnings.append(
                    f'{item.place}: {name} should be a duration such as "{item.value}s"'
                )
        else:
            ns = parse_duration(_text(item))
        if ns < low_ns:
            raise ValueError(f"has to be at least {low_ns / SECOND_NS:g} seconds")
        setattr(reader.settings, attribute, ns)

    return apply


def _address(host: str, port: str) -> _Key:
    def apply(reader: _Reader, name: str, item: Item) -> None:
        settings = reader.settings
        found = parse_address(_text(item), getattr(settings, host), getattr(settings, port))
        setattr(settings, host, found[0])
        setattr(settings, port, found[1])

    return apply


def _port(item: Item) -> int:
    number = _whole(item)
    if number != -1 and not 0 <= number <= 65535:
        raise ValueError(f"{number} is not a port: a number up to 65535, or -1 for any free one")
    return number


def _sync_interval(reader: _Reader, name: str, item: Item) -> None:
    if isinstance(item.value, str) and item.value.lower() == "always":
        reader.settings.sync_interval_ns = 0
        return
    _duration("sync_interval_ns", 1)(reader, name, item)


def _jetstream(reader: _Reader, name: str, item: Item) -> None:
    if isinstance(item.value, dict):
        reader.settings.jetstream = True
        reader.section(item.value, _JETSTREAM, "jetstream.")
    elif isinstance(item.value, bool):
        reader.settings.jetstream = item.value
    elif isinstance(item.value, str) and item.value.lower() in (
        "enabled",
        "enable",
        "disabled",
        "disable",
    ):
        reader.settings.jetstream = item.value.lower().startswith("enable")
    else:
        raise ValueError(f"expected a map, true, false, enabled or disabled, got {_kind(item)}")


def _disabled(reader: _Reader, name: str, item: Item) -> None:
    reader.settings.jetstream = not _flag(item)


def _count(item: Item) -> int:
    number = _whole(item)
    if number < -1:
        raise ValueError(f"{number} is not a limit: a number, 0 or -1 for none")
    return max(number, 0)


def _span(item: Item) -> int:
    return parse_duration(_text(item))


def _limit(attribute: str, convert: Convert) -> _Key:
    """One of `jetstream.limits`; those of batches are in a part of their own."""

    def apply(reader: _Reader, name: str, item: Item) -> None:
        part, _, key = attribute.rpartition(".")
        where = "batch_limits" if part else "jetstream_limits"
        settings = reader.settings
        setattr(settings, where, {**getattr(settings, where), key: convert(item)})

    return apply


def _section(table: "Mapping[str, _Key]", where: str) -> _Key:
    def apply(reader: _Reader, name: str, item: Item) -> None:
        if not isinstance(item.value, dict):
            raise ValueError(f"expected a map, got {_kind(item)}")
        reader.section(item.value, table, where)

    return apply


def _no_queue(reader: _Reader, name: str, item: Item) -> None:
    """Bounds of a queue that this server does not have: taken, since nothing can exceed them."""
    _limit_size(item)
    reader.warnings.append(f"{item.place}: {name} bounds a queue that this server does not have")


def _authorization(reader: _Reader, name: str, item: Item) -> None:
    if not isinstance(item.value, dict):
        raise ValueError(f"expected a map, got {_kind(item)}")
    reader.section(item.value, _AUTHORIZATION, "authorization.")


def _users(reader: _Reader, name: str, item: Item) -> None:
    if not isinstance(item.value, list):
        raise ValueError(f"expected an array of users, got {_kind(item)}")
    users: list[User] = []
    for entry in item.value:
        if not isinstance(entry.value, dict):
            reader.problem(
                entry,
                f"expected a user as a map {{user: name, password: secret}}, got {_kind(entry)}",
            )
            continue
        user = User("", "")
        for key, value in entry.value.items():
            attribute = _USER_FIELDS.get(key.lower())
            if attribute is None:
                reader.section({key: value}, {}, "user.")
            else:
                setattr(
                    user, attribute, _secret(value) if attribute == "password" else _text(value)
                )
        if not user.name:
            reader.problem(entry, "a user needs a name")
        elif any(user.name == other.name for other in users):
            reader.problem(entry, f'user "{user.name}" is there twice')
        users.append(user)
    reader.settings.users = users


def _remotes(reader: _Reader, name: str, item: Item) -> None:
    if not isinstance(item.value, dict):
        raise ValueError(f"expected a map of names to servers, got {_kind(item)}")
    reader.settings.remotes = []
    for key, entry in item.value.items():
        if not re.fullmatch(r"[^\s.*>]+", key):
            reader.problem(entry, f'"{key}" is no name for a remote: no space, ".", "*" or ">"')
        elif not isinstance(entry.value, dict):
            reader.problem(entry, f"expected a map {{url: nats://host}}, got {_kind(entry)}")
        else:
            reader.settings.remotes.append(_remote(reader, key, entry.value, entry))


def _remote(reader: _Reader, name: str, fields: dict[str, Item], place: Item) -> RemoteServer:
    remote = RemoteServer(name)
    for key, item in fields.items():
        try:
            if key.lower() == "url":
                remote.urls.append(_remote_url(item))
            elif key.lower() == "urls" and isinstance(item.value, list):
                remote.urls += [_remote_url(each) for each in item.value]
            elif key.lower() in _REMOTE_FIELDS:
                attribute = _REMOTE_FIELDS[key.lower()]
                setattr(remote, attribute, _text(item))
            else:
                reader.section({key: item}, {}, "remotes.")
        except ValueError as problem:
            reader.problem(item, f"{key}: {problem}")
    if not remote.urls:
        reader.problem(place, f'remote "{name}" needs a url')
    return remote


def _remote_url(item: Item) -> str:
    text = _text(item)
    url = text if "://" in text else f"nats://{text}"
    parts = urlsplit(url)
    if parts.scheme not in ("nats", "tls") or not parts.hostname:
        raise ValueError(f'expected nats://host:port or tls://host:port, got "{text}"')
    if parts.port == 0:  # ValueError when it is no number
        raise ValueError(f'port 0 in "{text}"')
    return url


_REMOTE_FIELDS = {
    "user": "user",
    "username": "user",
    "pass": "password",
    "password": "password",
    "token": "token",
    "ca_file": "ca_file",
}

_USER_FIELDS = {"user": "name", "username": "name", "pass": "password", "password": "password"}

_AUTHORIZATION: dict[str, _Key] = {
    "user": _set("user", _text),
    "username": _set("user", _text),
    "pass": _set("password", _secret),
    "password": _set("password", _secret),
    "token": _set("token", _secret),
    "timeout": _duration("auth_timeout_ns", 1),
    "users": _users,
}

_JETSTREAM: dict[str, _Key] = {
    "enabled": _set("jetstream", _flag),
    "enable": _set("jetstream", _flag),
    "disabled": _disabled,
    "disable": _disabled,
    "strict": _set("strict", _flag),
    "store": _set("store_dir", _text),
    "store_dir": _set("store_dir", _text),
    "storedir": _set("store_dir", _text),
    "sync": _sync_interval,
    "sync_interval": _sync_interval,
    "max_memory_store": _set("max_memory", _limit_size),
    "max_mem_store": _set("max_memory", _limit_size),
    "max_mem": _set("max_memory", _limit_size),
    "max_file_store": _set("max_file", _limit_size),
    "max_file": _set("max_file", _limit_size),
    "domain": _set("domain", _domain),
    "max_buffered_size": _no_queue,
    "max_buffered_msgs": _no_queue,
    "request_queue_limit": _no_queue,
    "info_queue_limit": _no_queue,
    "remotes": _remotes,
}

_BATCH_LIMITS: dict[str, _Key] = {
    "max_inflight_per_stream": _limit("batch.max_inflight_per_stream", _count),
    "max_inflight_total": _limit("batch.max_inflight_total", _count),
    "max_msgs": _limit("batch.max_msgs", _count),
    "timeout": _limit("batch.timeout_ns", _span),
}

_LIMITS: dict[str, _Key] = {
    "max_ack_pending": _limit("max_ack_pending", _count),
    "max_ha_assets": _limit("max_ha_assets", _count),
    "max_request_batch": _limit("max_request_batch", _count),
    "duplicate_window": _limit("duplicate_window_ns", _span),
    "batch": _section(_BATCH_LIMITS, "jetstream.limits.batch."),
}

_JETSTREAM["limits"] = _section(_LIMITS, "jetstream.limits.")

_TOP: dict[str, _Key] = {
    "listen": _address("host", "port"),
    "host": _set("host", _text),
    "net": _set("host", _text),
    "port": _set("port", _port),
    "server_name": _set("server_name", _name),
    "http": _address("http_host", "http_port"),
    "http_port": _set("http_port", _port),
    "monitor_port": _set("http_port", _port),
    "jetstream": _jetstream,
    "store_dir": _set("store_dir", _text),
    "storedir": _set("store_dir", _text),
    "authorization": _authorization,
    "debug": _set("debug", _flag),
    "trace": _set("trace", _flag),
    "logtime": _set("logtime", _flag),
    "logtime_utc": _set("logtime_utc", _flag),
    "logfile": _set("log_file", _text),
    "log_file": _set("log_file", _text),
    "pidfile": _set("pid_file", _text),
    "pid_file": _set("pid_file", _text),
    "ports_file_dir": _set("ports_file_dir", _text),
    "max_payload": _set("max_payload", _between(1, 256 * 1024 * 1024)),
    "max_control_line": _set("max_control_line", _between(64, 1024 * 1024)),
    "max_pending": _set("max_pending", _between(1024, 1 << 40)),
    "max_connections": _set("max_connections", _whole),
    "max_conn": _set("max_connections", _whole),
    "max_subscriptions": _set("max_subscriptions", _between(0, 1 << 31)),
    "max_subs": _set("max_subscriptions", _between(0, 1 << 31)),
    "max_closed_clients": _set("max_closed_clients", _between(0, 1_000_000)),
    "ping_interval": _duration("ping_interval_ns", 1_000_000),
    "ping_max": _set("ping_max", _between(1, 1_000_000)),
    "write_deadline": _duration("write_deadline_ns", 1_000_000),
    "lame_duck_duration": _duration("lame_duck_duration_ns", _MIN_LAME_DUCK_NS),
    "lame_duck_grace_period": _duration("lame_duck_grace_period_ns"),
}

# Keys that nats-server knows and this version does not serve: refused by name, because leaving out
# what they ask for (encryption, permissions, a cluster) without a word would be worse than not
# starting.
_NOT_SERVED = frozenset(
    """
    accounts allow_non_tls client_advertise cluster connect_error_reports default_js_domain
    default_sentinel disable_sublist_cache feature_flags gateway http_base_path https https_port
    leaf leafnodes log_max_num log_size_limit logfile_max_num logfile_size_limit mappings maps
    max_sub_tokens max_subscription_tokens max_traced_msg_len mqtt no_auth_user
    no_fast_producer_stall no_header_support no_sublist_cache no_sys_acc no_system no_system_account
    ocsp ocsp_cache operator operators prof_block_rate prof_port proxies proxy_protocol
    reconnect_error_reports remote_syslog resolver account_resolver accounts_resolver
    resolver_pinned_accounts resolver_preload resolver_tls root roots root_operator root_operators
    server_metadata server_tags syslog system system_account tls trace_headers trace_verbose trusted
    trusted_keys websocket write_timeout ws authorization.default_permission
    authorization.default_permissions authorization.permissions authorization.auth_callout
    authorization.auth_hook authorization.proxy_required user.permissions user.permission user.nkey
    user.allowed_connection_types user.connection_types user.proxy_required user.account
    jetstream.key jetstream.ek jetstream.encryption_key jetstream.prev_key jetstream.prev_ek
    jetstream.prev_encryption_key jetstream.cipher jetstream.extension_hint jetstream.tpm
    jetstream.unique_tag jetstream.max_outstanding_catchup
    jetstream.meta_compact jetstream.meta_compact_size jetstream.meta_compact_sync
    jetstream.max_concurrent_io
    """.split()  # noqa: SIM905 # one word on a line would be two pages
)
