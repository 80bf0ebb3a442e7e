"""Keys for operation: names, logging, monitoring."""

from pelton.server.config.grammar import Item
from pelton.server.config.reader import Key, Reader
from pelton.server.config.values import address, between, flag, kind, port, set_to, text, whole
from pelton.server.settings.accounts import (
    DEFAULT_ACCOUNT,
    SYSTEM_ACCOUNT,
    Mapping,
    MappingTarget,
)
from pelton.server.units import parse_address

_WRITE_TIMEOUTS = ("default", "close", "retry")
_MOST = 1 << 62


def _texts(item: Item) -> list[str]:
    """One text or an array of them."""
    if isinstance(item.value, list):
        return [text(each) for each in item.value]
    return [text(item)]


def _map(item: Item) -> dict[str, Item]:
    if not isinstance(item.value, dict):
        raise ValueError(f"expected a map, got {kind(item)}")
    return item.value


def _metadata(item: Item) -> dict[str, str]:
    return {name: _only_text(each) for name, each in _map(item).items()}


def _only_text(item: Item) -> str:
    if not isinstance(item.value, str):
        raise ValueError(f"expected a text, got {kind(item)}; put it in quotes")
    return item.value


def _features(item: Item) -> dict[str, bool]:
    return {name: flag(each) for name, each in _map(item).items()}


def _write_timeout(item: Item) -> str:
    value = text(item).lower()
    if value not in _WRITE_TIMEOUTS:
        raise ValueError(f'expected default, close or retry, got "{value}"')
    return value


def _advertise(item: Item) -> str:
    value = text(item)
    parse_address(value, "", 0)
    return value


def _trace_more(reader: Reader, name: str, item: Item) -> None:
    """Verbose trace lines; this also enables the trace log."""
    setattr(reader.target, name.lower(), flag(item))
    if flag(item):
        reader.target.trace = True


def _base_path(item: Item) -> str:
    path = "/" + text(item).strip("/")
    return "" if path == "/" else path


def _traced(item: Item) -> int:
    return max(whole(item), 0)


def without_effect(why: str) -> Key:
    """A key that is accepted without effect, because its demand is met already or can't matter
    here; the log says `why`.
    """

    def apply(reader: Reader, name: str, item: Item) -> None:
        reader.warn(item, f"{name} has no effect: {why}")

    return apply


def taken(reader: Reader, name: str, item: Item) -> None:
    """A tuning key that this server ignores: its own way of work makes no difference to clients."""


def check_default_domains(reader: Reader, item: Item) -> None:
    """Convert ``default_js_domain`` to mappings: an account without JetStream here uses that of a
    domain behind leaf nodes.
    """
    settings = reader.settings
    own = {account.name: account for account in settings.accounts}
    for name, domain in settings.default_js_domain.items():
        if name == (settings.system_account or SYSTEM_ACCOUNT):
            reader.problem(item, f'system account "{name}" can not be in default_js_domain')
        elif name == DEFAULT_ACCOUNT:
            if domain and not settings.jetstream:
                settings.mappings = [*settings.mappings, *_domain_mappings(domain)]
        elif name in own:
            if domain and own[name].jetstream is not None:
                text = f'default_js_domain contains account name "{name}" with enabled JetStream'
                reader.problem(item, text)
            elif domain:
                own[name].mappings = [*own[name].mappings, *_domain_mappings(domain)]
        elif settings.operator is None:
            text = f'default_js_domain references non existing account "{name}"'
            reader.problem(item, text)


def _domain_mappings(domain: str) -> list[Mapping]:
    calls = ("INFO", "STREAM.>", "CONSUMER.>", "DIRECT.>", "META.>", "SERVER.>")
    pairs = {f"$JS.API.{call}": call for call in calls} | {"$KV.>": "$KV.>", "$OBJ.>": "$OBJ.>"}
    return [
        Mapping(subject, [MappingTarget(f"$JS.{domain}.API.{call}")])
        for subject, call in pairs.items()
    ]


OPERATIONS: dict[str, Key] = {
    "client_advertise": set_to("client_advertise", _advertise),
    "server_tags": set_to("server_tags", _texts),
    "server_metadata": set_to("server_metadata", _metadata),
    "feature_flags": set_to("feature_flags", _features),
    "https": address("http_host", "https_port"),
    "https_port": set_to("https_port", port),
    "http_base_path": set_to("http_base_path", _base_path),
    "prof_port": set_to("prof_port", port),
    "prof_block_rate": taken,
    "logfile_size_limit": set_to("log_size_limit", between(0, _MOST)),
    "log_size_limit": set_to("log_size_limit", between(0, _MOST)),
    "logfile_max_num": set_to("log_max_num", between(0, 1_000_000)),
    "log_max_num": set_to("log_max_num", between(0, 1_000_000)),
    "syslog": set_to("syslog", flag),
    "remote_syslog": set_to("remote_syslog", text),
    "trace_verbose": _trace_more,
    "trace_headers": _trace_more,
    "max_traced_msg_len": set_to("max_traced_msg_len", _traced),
    "connect_error_reports": set_to("connect_error_reports", between(0, _MOST)),
    "reconnect_error_reports": set_to("reconnect_error_reports", between(0, _MOST)),
    "write_timeout": set_to("write_timeout", _write_timeout),
    "default_js_domain": set_to("default_js_domain", _metadata),
    "disable_sublist_cache": taken,
    "no_sublist_cache": taken,
    "no_header_support": lambda reader, name, item: setattr(
        reader.target, "headers", not flag(item)
    ),
    "ocsp_cache": without_effect("no OCSP answers are asked for"),
}
