"""``streams``, ``consumers``, ``kv`` and ``objects``: the server creates them before it serves the first
client.

    streams   { ORDERS { subjects: ["orders.>"], max_age: 7d, max_bytes: 10GB } }
    consumers { ORDERS { packing { ack_policy: explicit, ack_wait: 30s } } }
    kv        { profiles { history: 5, ttl: 1h } }
    objects   { files { max_bytes: 100GB } }

Fields have the names of the JSON API. A duration has a unit (`7d`, `1h30m`) or is a number of
nanoseconds, as in the API; a size may have a unit. A bucket is converted to its stream.
"""

import re
from collections.abc import Callable
from typing import Any

from pelton.api.keyvalue import (
    DUPLICATE_WINDOW_NS,
    HISTORY_MAX,
    STREAM_PREFIX,
    prefix_of,
    stream_of,
)
from pelton.api.sizes import parse_size
from pelton.api.times import DurationTooLongError, parse_long_duration
from pelton.server.config.grammar import Item
from pelton.server.config.reader import Key, Reader
from pelton.server.config.values import kind
from pelton.server.settings.accounts import AccountSettings
from pelton.server.settings.declared import Declared

_SHORTEST_NS = 1_000_000
_DURATIONS = frozenset(
    {
        "max_age",
        "duplicate_window",
        "ack_wait",
        "backoff",
        "idle_heartbeat",
        "inactive_threshold",
        "max_expires",
        "subject_delete_marker_ttl",
        "priority_timeout",
        "ttl",
        "limit_marker_ttl",
    }
)
_SIZES = frozenset({"max_bytes", "max_msg_size", "max_value_size", "rate_limit_bps"})
_NAME = re.compile(r"[^\s.*>/\\]+")
_BUCKET = re.compile(r"[A-Za-z0-9_-]+")

Fields = dict[str, Any]


def streams(reader: Reader, name: str, item: Item) -> None:
    """A map of names to configurations of streams, or an array of configurations."""
    for key, entry in _entries(reader, item, _NAME, "stream"):
        _declare(reader, entry, f'stream "{key}"', key, "", {**_fields(reader, entry), "name": key})


def consumers(reader: Reader, name: str, item: Item) -> None:
    """A map of streams to maps of names to configurations of consumers."""
    for stream, entry in _entries(reader, item, _NAME, "stream", groups=True):
        for key, inner in _entries(reader, entry, _NAME, "consumer"):
            fields = {**_fields(reader, inner), "name": key, "durable_name": key}
            _declare(reader, inner, f'consumer "{key}" of stream "{stream}"', stream, key, fields)


def key_values(reader: Reader, name: str, item: Item) -> None:
    """A map of names to configurations of buckets."""
    _buckets(reader, item, STREAM_PREFIX, _key_value)


def objects(reader: Reader, name: str, item: Item) -> None:
    """A map of names to configurations of object stores."""
    _buckets(reader, item, "OBJ_", _object_store)


def _buckets(
    reader: Reader, item: Item, prefix: str, make: Callable[[str, Fields], Fields]
) -> None:
    for key, entry in _entries(reader, item, _BUCKET, "bucket"):
        try:
            fields = make(key, _fields(reader, entry))
        except ValueError as problem:
            reader.problem(entry, f"{key}: {problem}")
            continue
        _declare(reader, entry, f'bucket "{key}"', prefix + key, "", fields)


def _entries(
    reader: Reader, item: Item, names: re.Pattern[str], what: str, groups: bool = False
) -> list[tuple[str, Item]]:
    """The entries of a map or an array, by name; an entry without a name is an error. groups: each
    entry may be an array again.
    """
    found: list[tuple[str, Item]] = []
    if isinstance(item.value, dict):
        found = list(item.value.items())
    elif isinstance(item.value, list):
        for entry in item.value:
            named = entry.value.get("name") if isinstance(entry.value, dict) else None
            if named is None or not isinstance(named.value, str):
                reader.problem(entry, f"a {what} in an array needs a name")
            else:
                found.append((named.value, entry))
    else:
        raise ValueError(f"expected a map of names to {what}s, got {kind(item)}")
    good: list[tuple[str, Item]] = []
    for key, entry in found:
        if reader.tree.is_variable(entry):
            continue
        if not names.fullmatch(key):
            reader.problem(entry, f'"{key}" can\'t be the name of a {what}')
        elif not isinstance(entry.value, dict) and not (groups and isinstance(entry.value, list)):
            reader.problem(entry, f"{key}: expected a map, got {kind(entry)}")
        else:
            good.append((key, entry))
    return good


def _declare(
    reader: Reader, item: Item, shown: str, stream: str, consumer: str, fields: Fields
) -> None:
    problem = _misfit(consumer, fields)
    if problem:
        reader.problem(item, f"{shown}: {problem}")
    account = reader.target.name if isinstance(reader.target, AccountSettings) else ""
    declared = Declared(fields, consumer, stream, account, shown, item.place)
    same = [
        each
        for each in reader.settings.declared
        if (each.account, each.stream, each.consumer) == (account, stream, consumer)
    ]
    if same:
        reader.problem(item, f"{shown} is declared twice, also at {same[0].place}")
    reader.settings.declared = [*reader.settings.declared, declared]


def _misfit(consumer: str, fields: Fields) -> str:
    """The error for which the API would refuse this JSON: an unknown field, a wrong type; "" when
    it is valid.
    """
    import json

    from pelton.api.calls import CreateConsumerRequest, StreamConfigRequest
    from pelton.api.codec import JsonError, decode_request

    try:
        if consumer:
            decode_request(CreateConsumerRequest, json.dumps({"config": fields}).encode())
        else:
            decode_request(StreamConfigRequest, json.dumps(fields).encode())
    except JsonError as problem:
        return str(problem)
    return ""


# -- values


def _fields(reader: Reader, item: Item) -> Fields:
    """A map as JSON; durations and sizes become the API's numbers."""
    assert isinstance(item.value, dict)
    found: Fields = {}
    for key, entry in item.value.items():
        try:
            found[key.lower()] = _value(reader, key.lower(), entry)
        except ValueError as problem:
            reader.problem(entry, f"{key}: {problem}")
    return found


def _value(reader: Reader, key: str, item: Item) -> Any:
    if isinstance(item.value, list):
        return [_value(reader, key, each) for each in item.value]
    if isinstance(item.value, dict):
        if key == "metadata":
            return {name: _text(each) for name, each in item.value.items()}
        return _fields(reader, item)
    if key in _DURATIONS:
        return duration_ns(item)
    if key in _SIZES and isinstance(item.value, str):
        return parse_size(item.value, bare=1000)
    return item.value


def _text(item: Item) -> str:
    return item.value if isinstance(item.value, str) else item.word or str(item.value)


def duration_ns(item: Item) -> int:
    """`7d`, `1h30m`, or nanoseconds as a number."""
    # The grammar reads `5m` as five million.
    word = item.word or (item.value if isinstance(item.value, str) else "")
    if word.isdigit() or (isinstance(item.value, int) and not word):
        number = int(item.value) if isinstance(item.value, int) else int(word)
        if 0 < number < _SHORTEST_NS:
            raise ValueError(f'{number} needs a unit, such as "{number}s"')
        return number
    try:
        return parse_long_duration(word)
    except DurationTooLongError:
        raise
    except ValueError:
        raise ValueError(f'"{word}" is not a duration such as 250ms, 10m, 1h30m or 7d') from None


# -- buckets


def _take(fields: Fields, allowed: dict[str, str]) -> Fields:
    """The fields of a bucket under the names of its stream's configuration."""
    unknown = [name for name in fields if name not in allowed and name != "name"]
    if unknown:
        known = ", ".join(sorted(allowed))
        raise ValueError(f'unknown field "{unknown[0]}"; a bucket has {known}')
    return {allowed[name]: value for name, value in fields.items() if name != "name"}


def _common(fields: Fields, taken: Fields) -> Fields:
    if "compression" in fields:
        taken["compression"] = "s2" if fields["compression"] in (True, "s2") else "none"
    return taken


def _key_value(bucket: str, fields: Fields) -> Fields:
    taken = _common(fields, _take(fields, _KEY_VALUE))
    history = taken.setdefault("max_msgs_per_subject", 1)
    if not isinstance(history, int) or not 1 <= history <= HISTORY_MAX:
        raise ValueError(f"history is 1 to {HISTORY_MAX}")
    ttl = taken.get("max_age", 0)
    if isinstance(ttl, int) and 0 < ttl < DUPLICATE_WINDOW_NS:
        taken["duplicate_window"] = ttl
    if taken.get("subject_delete_marker_ttl"):
        taken["allow_msg_ttl"] = True
    taken.update(
        name=stream_of(bucket),
        discard="new",
        allow_rollup_hdrs=True,
        deny_delete=True,
        allow_direct=True,
    )
    if "mirror" in taken:
        taken["mirror_direct"] = True
    else:
        taken["subjects"] = [f"{prefix_of(bucket)}>"]
    return taken


def _object_store(bucket: str, fields: Fields) -> Fields:
    taken = _common(fields, _take(fields, _OBJECTS))
    taken.update(
        name=f"OBJ_{bucket}",
        subjects=[f"$O.{bucket}.C.>", f"$O.{bucket}.M.>"],
        discard="new",
        allow_rollup_hdrs=True,
        allow_direct=True,
    )
    return taken


_OBJECTS = {
    "description": "description",
    "ttl": "max_age",
    "max_bytes": "max_bytes",
    "storage": "storage",
    "num_replicas": "num_replicas",
    "replicas": "num_replicas",
    "compression": "compression",
    "placement": "placement",
    "metadata": "metadata",
}
_KEY_VALUE = {
    **_OBJECTS,
    "history": "max_msgs_per_subject",
    "max_value_size": "max_msg_size",
    "limit_marker_ttl": "subject_delete_marker_ttl",
    "republish": "republish",
    "mirror": "mirror",
    "sources": "sources",
}

# The keys of the top level, and of an account.
DECLARED: dict[str, Key] = {
    "streams": streams,
    "consumers": consumers,
    "kv": key_values,
    "key_values": key_values,
    "objects": objects,
}
