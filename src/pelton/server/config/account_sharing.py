"""``exports`` and ``imports`` of an account. `server/accounts/sharing` checks them against each other when
all accounts are known.
"""

from collections.abc import Callable

from pelton.server.config.grammar import Item
from pelton.server.config.reader import Reader
from pelton.server.config.values import flag, kind, text, whole
from pelton.server.settings.accounts import (
    CHUNKED,
    SINGLETON,
    STREAMED,
    Export,
    Import,
    Latency,
)
from pelton.server.units import parse_duration

_RESPONSES = {
    "single": SINGLETON,
    "singleton": SINGLETON,
    "stream": STREAMED,
    "chunk": CHUNKED,
    "chunked": CHUNKED,
}


class _Problem(Exception):
    """An error in an entry, with its place."""

    def __init__(self, item: Item, text: str) -> None:
        super().__init__(text)
        self.item = item
        self.text = text


def exports(reader: Reader, name: str, item: Item) -> None:
    """An array of streams and services."""
    reader.target.exports = _entries(reader, item, "Exports", "Export", _export)


def imports(reader: Reader, name: str, item: Item) -> None:
    """An array of streams and services."""
    found: list[Import] = _entries(reader, item, "Imports", "Import", _import)
    services: dict[tuple[str, str], Import] = {}
    for each in found:
        if not each.service:
            continue
        other = services.setdefault((each.local, each.account), each)
        if other is not each:
            reader.problem(
                item,
                f'Duplicate service import subject "{each.local}", previously used in '
                f'import for account "{other.account}", subject "{other.subject}"',
            )
    reader.target.imports = found


def _entries(
    reader: Reader,
    item: Item,
    plural: str,
    one: str,
    parse: Callable[[Reader, dict[str, Item], Item], object],
) -> list:  # type: ignore[type-arg]  # of what `parse` makes
    if not isinstance(item.value, list):
        reader.problem(item, f"{plural} should be an array, got {kind(item)}")
        return []
    found = []
    for entry in item.value:
        if not isinstance(entry.value, dict):
            reader.problem(entry, f"{one} Items should be a map with type entry, got {kind(entry)}")
            continue
        try:
            found.append(parse(reader, entry.value, entry))
        except _Problem as problem:
            reader.problem(problem.item, problem.text)
        except ValueError as problem:
            reader.problem(entry, str(problem))
    return found


def _fields(items: dict[str, Item]) -> dict[str, Item]:
    return {key.lower(): item for key, item in items.items()}


def _unknown(reader: Reader, items: dict[str, Item], known: frozenset[str]) -> None:
    for key, item in items.items():
        if key.lower() not in known and not reader.tree.is_variable(item):
            reader.problem(item, f'unknown field "{key}"')


# -- exports


_RESPONSE_KEYS = ("response", "response_type")
_THRESHOLD_KEYS = ("threshold", "response_threshold", "response_max_time", "response_time")
_EXPORT_KEYS = frozenset(
    {
        "stream",
        "service",
        *_RESPONSE_KEYS,
        *_THRESHOLD_KEYS,
        "accounts",
        "latency",
        "account_token_position",
        "allow_trace",
    }
)


def _export(reader: Reader, items: dict[str, Item], entry: Item) -> Export:
    _unknown(reader, items, _EXPORT_KEYS)
    fields = _fields(items)
    stream, service = fields.get("stream"), fields.get("service")
    if stream is not None and service is not None:
        raise _Problem(service, f'Detected service "{text(service)}" but already saw a stream')
    subject = stream or service
    if subject is None:
        raise _Problem(entry, "Export Items should be a map with type entry")
    what = "stream" if stream is not None else "service"
    if not isinstance(subject.value, str):
        raise _Problem(subject, f"Expected {what} name to be string, got {kind(subject)}")
    export = Export(subject.value, service=service is not None)
    _export_response(fields, export)
    if (item := fields.get("accounts")) is not None:
        if not isinstance(item.value, list):
            raise _Problem(item, f"accounts: expected an array of names, got {kind(item)}")
        export.accounts = [text(each) for each in item.value]
    if (item := fields.get("account_token_position")) is not None:
        export.account_token_position = whole(item)
    if (item := fields.get("allow_trace")) is not None:
        if not export.service:
            raise _Problem(item, "Detected allow_trace directive on non-service")
        export.allow_trace = flag(item)
    if (item := fields.get("latency")) is not None:
        if not export.service:
            raise _Problem(item, "Detected latency directive on non-service")
        export.latency = _latency(item)
    return export


def _export_response(fields: dict[str, Item], export: Export) -> None:
    kinds = [fields[key] for key in _RESPONSE_KEYS if key in fields]
    if len(kinds) > 1:
        raise _Problem(kinds[1], "Duplicate response type definition")
    for item in kinds:
        if not isinstance(item.value, str):
            raise _Problem(item, f"Expected response type to be string, got {kind(item)}")
        response = _RESPONSES.get(item.value.lower())
        if response is None:
            raise _Problem(item, f'Unknown response type: "{item.value}"')
        export.response = response
    spans = [fields[key] for key in _THRESHOLD_KEYS if key in fields]
    if len(spans) > 1:
        raise _Problem(spans[1], "Duplicate response threshold detected")
    expected = "Expected response threshold to be a parseable time duration, got "
    for item in spans:
        if not isinstance(item.value, str):
            raise _Problem(item, f"{expected}{kind(item)}")
        try:
            export.threshold_ns = parse_duration(item.value)
        except ValueError:
            raise _Problem(item, f'{expected}"{item.value}"') from None
    if (kinds or spans) and not export.service:
        raise _Problem((kinds or spans)[0], "Detected response directive on non-service")


def _latency(item: Item) -> Latency:
    if isinstance(item.value, str):
        return Latency(item.value)
    if not isinstance(item.value, dict):
        raise _Problem(
            item, f"Expected latency entry to be a map/struct or string, got {kind(item)}"
        )
    fields = item.value
    latency = Latency()
    if "sampling" in fields:
        latency.sampling = _sampling(fields["sampling"])
    if "subject" not in fields:
        raise _Problem(item, "Latency subject required, but missing")
    subject = fields["subject"]
    if not isinstance(subject.value, str):
        raise _Problem(subject, f"Expected latency subject to be a string, got {kind(subject)}")
    latency.subject = subject.value
    return latency


def _sampling(item: Item) -> int:
    value = item.value
    if isinstance(value, str):
        if value.strip().lower() == "headers":
            return 0
        try:
            value = int(value.removesuffix("%"))
        except ValueError:
            raise _Problem(item, f'Failed to parse latency sample: "{value}"') from None
    if not isinstance(value, int) or isinstance(value, bool):
        raise _Problem(
            item, f"Expected latency sample to be a string or map/struct, got {kind(item)}"
        )
    if not 1 <= value <= 100:
        raise _Problem(item, "bad sampling percentage, should be 1-100")
    return value


# -- imports


_IMPORT_KEYS = frozenset({"stream", "service", "prefix", "to", "share", "allow_trace"})


def _import(reader: Reader, items: dict[str, Item], entry: Item) -> Import:
    _unknown(reader, items, _IMPORT_KEYS)
    fields = _fields(items)
    stream, service = fields.get("stream"), fields.get("service")
    if stream is not None and service is not None:
        raise _Problem(service, "Detected service but already saw a stream")
    origin = stream or service
    if origin is None:
        raise _Problem(entry, "Import Items should be a map with type entry")
    found = Import(service=service is not None)
    if not isinstance(origin.value, dict):
        what = "Service" if found.service else "Stream"
        raise _Problem(origin, f"{what} entry should be an account map, got {kind(origin)}")
    _unknown(reader, origin.value, frozenset({"account", "subject"}))
    of = _fields(origin.value)
    found.account = text(of["account"]) if "account" in of else ""
    found.subject = text(of["subject"]) if "subject" in of else ""
    if not found.account or not found.subject:
        raise _Problem(origin, "Expect an account name and a subject")
    if (item := fields.get("prefix")) is not None and not found.service:
        found.prefix = text(item)
    if (item := fields.get("to")) is not None:
        found.to = text(item)
        if found.prefix:
            raise _Problem(item, "Stream import can not have a 'prefix' and a 'to' property")
    if (item := fields.get("share")) is not None:
        found.share = flag(item)
    if (item := fields.get("allow_trace")) is not None:
        if found.service:
            raise _Problem(item, "Detected allow_trace directive on a non-stream")
        found.allow_trace = flag(item)
    return found
