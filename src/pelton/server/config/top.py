"""The top level of the configuration: its keys, checks across several keys, and nats-server's keys that
this server does not support.
"""

from pelton.server.config.accounts import accounts, check_accounts, system_account
from pelton.server.config.authorization import authorization, check_authorization
from pelton.server.config.cluster import cluster, gateway, mqtt
from pelton.server.config.declared import DECLARED
from pelton.server.config.grammar import Item
from pelton.server.config.jetstream import jetstream
from pelton.server.config.leafnodes import leafnodes
from pelton.server.config.mappings import mappings
from pelton.server.config.operations import OPERATIONS, check_default_domains
from pelton.server.config.operator import OPERATOR, check_operator
from pelton.server.config.reader import Key, Reader
from pelton.server.config.tls import tls
from pelton.server.config.values import (
    address,
    between,
    duration,
    flag,
    folder,
    port,
    server_name,
    set_to,
    text,
    whole,
)
from pelton.server.config.websocket import check_websocket, websocket
from pelton.server.units import SECOND_NS

_MIN_LAME_DUCK_NS = 30 * SECOND_NS


def check_whole(reader: Reader, items: dict[str, Item]) -> None:
    """Checks across several keys."""
    settings = reader.settings
    place = next(iter(items.values())) if items else Item("", "config", 1, 1)
    named = {name.lower(): item for name, item in items.items()}
    check_authorization(reader, named, place)
    check_websocket(reader, named.get("websocket", named.get("ws", place)))
    check_operator(reader, named.get("operator", place))
    check_accounts(reader, named.get("accounts", place))
    check_default_domains(reader, named.get("default_js_domain", place))
    if settings.max_payload > settings.max_pending:
        reader.problem(
            named.get("max_payload", place),
            f"max_payload ({settings.max_payload}) can't be larger than "
            f"max_pending ({settings.max_pending})",
        )
    if settings.lame_duck_grace_period_ns >= settings.lame_duck_duration_ns:
        reader.problem(
            named.get("lame_duck_grace_period", place),
            "lame_duck_grace_period has to be shorter than lame_duck_duration",
        )


TOP: dict[str, Key] = {
    **OPERATIONS,
    **DECLARED,
    "cluster": cluster,
    "gateway": gateway,
    "mqtt": mqtt,
    "listen": address("host", "port"),
    "host": set_to("host", text),
    "net": set_to("host", text),
    "port": set_to("port", port),
    "server_name": set_to("server_name", server_name),
    "http": address("http_host", "http_port"),
    "http_port": set_to("http_port", port),
    "monitor_port": set_to("http_port", port),
    "jetstream": jetstream,
    **dict.fromkeys(("leafnodes", "leaf"), leafnodes),
    "store_dir": folder("store_dir"),
    "storedir": folder("store_dir"),
    "authorization": authorization,
    "tls": tls(),
    "allow_non_tls": set_to("allow_non_tls", flag),
    "websocket": websocket,
    "ws": websocket,
    "proxy_protocol": set_to("proxy_protocol", flag),
    "accounts": accounts,
    "mappings": mappings,
    "maps": mappings,
    "system_account": set_to("system_account", system_account),
    "system": set_to("system_account", system_account),
    "no_system_account": set_to("no_system_account", flag),
    "no_system": set_to("no_system_account", flag),
    "no_sys_acc": set_to("no_system_account", flag),
    "no_auth_user": set_to("no_auth_user", text),
    **OPERATOR,
    "debug": set_to("debug", flag),
    "trace": set_to("trace", flag),
    "logtime": set_to("logtime", flag),
    "logtime_utc": set_to("logtime_utc", flag),
    "logfile": set_to("log_file", text),
    "log_file": set_to("log_file", text),
    "pidfile": set_to("pid_file", text),
    "pid_file": set_to("pid_file", text),
    "ports_file_dir": set_to("ports_file_dir", text),
    "max_payload": set_to("max_payload", between(1, 256 * 1024 * 1024)),
    "max_control_line": set_to("max_control_line", between(64, 1024 * 1024)),
    "max_pending": set_to("max_pending", between(1024, 1 << 40)),
    "max_connections": set_to("max_connections", whole),
    "max_conn": set_to("max_connections", whole),
    "max_subscriptions": set_to("max_subscriptions", between(0, 1 << 31)),
    "max_subs": set_to("max_subscriptions", between(0, 1 << 31)),
    "max_subscription_memory": set_to("max_subscription_memory", between(0, 1 << 40)),
    "max_output_memory": set_to("max_output_memory", between(0, 1 << 40)),
    "max_sub_tokens": set_to("max_sub_tokens", between(0, 255)),
    "max_subscription_tokens": set_to("max_sub_tokens", between(0, 255)),
    "no_fast_producer_stall": set_to("no_fast_producer_stall", flag),
    "max_closed_clients": set_to("max_closed_clients", between(0, 1_000_000)),
    "ping_interval": duration("ping_interval_ns", 1_000_000),
    "ping_max": set_to("ping_max", between(1, 1_000_000)),
    "write_deadline": duration("write_deadline_ns", 1_000_000),
    "lame_duck_duration": duration("lame_duck_duration_ns", _MIN_LAME_DUCK_NS),
    "lame_duck_grace_period": duration("lame_duck_grace_period_ns"),
}

# Keys of nats-server that this server refuses by name: to ignore their demand (permissions, a
# cluster) silently would be worse than not to start.
NOT_SERVED = frozenset(
    """
    ocsp proxies resolver_tls
    leafnodes.write_deadline leafnodes.write_timeout
    leafnodes.authorization.proxy_required leafnodes.remotes.proxy
    leafnodes.remotes.jetstream_cluster_migrate leafnodes.remotes.js_cluster_migrate
    jetstream.tpm
    """.split()  # noqa: SIM905 # one word on a line would be two pages
)
