"""``jetstream``: the store and its limits."""

from msgspec.structs import replace

from pelton.server.config.grammar import Item
from pelton.server.config.operations import taken
from pelton.server.config.origin_servers import remotes
from pelton.server.config.reader import Convert, Key, Reader
from pelton.server.config.values import (
    count,
    domain,
    duration,
    flag,
    folder,
    kind,
    limit_size,
    no_queue,
    section,
    set_to,
    span,
    text,
)
from pelton.vault import CIPHERS


def _sync_interval(reader: Reader, name: str, item: Item) -> None:
    if isinstance(item.value, str) and item.value.lower() == "always":
        reader.settings.sync_interval_ns = 0
        return
    duration("sync_interval_ns", 1)(reader, name, item)


def jetstream(reader: Reader, name: str, item: Item) -> None:
    """A map with settings, or a boolean that enables JetStream."""
    if isinstance(item.value, dict):
        reader.settings.jetstream = True
        reader.section(item.value, _KEYS, "jetstream.")
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
        raise ValueError(f"expected a map, true, false, enabled or disabled, got {kind(item)}")


def _disabled(reader: Reader, name: str, item: Item) -> None:
    reader.settings.jetstream = not flag(item)


def _cipher(item: Item) -> str:
    """The encryption settings of the store."""
    value = text(item).lower()
    if value not in CIPHERS:
        raise ValueError(f'"{value}" is not a cipher: chacha or aes')
    return value


def _store_key(item: Item) -> str:
    """An encryption key; errors do not show it."""
    if not isinstance(item.value, str | int | float) or isinstance(item.value, bool):
        raise ValueError("expected a text")
    value = text(item)
    if not value:
        raise ValueError("a key can't be empty")
    return value


def _encryption(attribute: str, convert: Convert) -> Key:
    """One of the values of `Encryption`."""

    def apply(reader: Reader, name: str, item: Item) -> None:
        made = replace(reader.settings.encryption, **{attribute: convert(item)})
        reader.settings.encryption = made

    return apply


def _limit(attribute: str, convert: Convert) -> Key:
    """One of `jetstream.limits`; batch limits have their own settings."""

    def apply(reader: Reader, name: str, item: Item) -> None:
        part, _, key = attribute.rpartition(".")
        where = "batch_limits" if part else "jetstream_limits"
        settings = reader.settings
        setattr(settings, where, {**getattr(settings, where), key: convert(item)})

    return apply


_KEYS: dict[str, Key] = {
    "enabled": set_to("jetstream", flag),
    "enable": set_to("jetstream", flag),
    "disabled": _disabled,
    "disable": _disabled,
    "strict": set_to("strict", flag),
    "store": folder("store_dir"),
    "store_dir": folder("store_dir"),
    "storedir": folder("store_dir"),
    "sync": _sync_interval,
    "sync_interval": _sync_interval,
    "max_memory_store": set_to("max_memory", limit_size),
    "max_mem_store": set_to("max_memory", limit_size),
    "max_mem": set_to("max_memory", limit_size),
    "max_file_store": set_to("max_file", limit_size),
    "max_file": set_to("max_file", limit_size),
    "domain": set_to("domain", domain),
    "max_buffered_size": no_queue,
    "max_buffered_msgs": no_queue,
    "request_queue_limit": no_queue,
    "info_queue_limit": no_queue,
    # Settings of streams shared in a cluster; they have no effect on a single server.
    "unique_tag": taken,
    "max_outstanding_catchup": taken,
    "meta_compact": taken,
    "meta_compact_size": taken,
    "meta_compact_sync": taken,
    "extension_hint": taken,
    "max_concurrent_io": taken,
    "remotes": remotes,
    "cipher": _encryption("cipher", _cipher),
    **dict.fromkeys(("key", "ek", "encryption_key"), _encryption("key", _store_key)),
    **dict.fromkeys(
        ("prev_key", "prev_ek", "prev_encryption_key"), _encryption("previous", _store_key)
    ),
}

_BATCH_LIMITS: dict[str, Key] = {
    "max_inflight_per_stream": _limit("batch.max_inflight_per_stream", count),
    "max_inflight_total": _limit("batch.max_inflight_total", count),
    "max_msgs": _limit("batch.max_msgs", count),
    "timeout": _limit("batch.timeout_ns", span),
}

_LIMITS: dict[str, Key] = {
    "max_ack_pending": _limit("max_ack_pending", count),
    "max_ha_assets": _limit("max_ha_assets", count),
    "max_request_batch": _limit("max_request_batch", count),
    "duplicate_window": _limit("duplicate_window_ns", span),
    "batch": section(_BATCH_LIMITS, "jetstream.limits.batch."),
}

_KEYS["limits"] = section(_LIMITS, "jetstream.limits.")
