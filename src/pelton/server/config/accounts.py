"""``accounts``: their users, limits, exports and imports.

Errors have nats-server's texts where nats-server has the same check.
"""

from collections.abc import Iterator

from pelton.core.protocol.subjects import literal
from pelton.nkeys import ACCOUNT, is_public
from pelton.server.config.account_sharing import exports, imports
from pelton.server.config.declared import DECLARED
from pelton.server.config.grammar import Item
from pelton.server.config.mappings import mappings
from pelton.server.config.permissions import read_permissions
from pelton.server.config.reader import Key, Reader
from pelton.server.config.users import read_users
from pelton.server.config.values import kind, text, whole
from pelton.server.settings.accounts import (
    DEFAULT_ACCOUNT,
    SYSTEM_ACCOUNT,
    AccountLimits,
    AccountSettings,
    JetStreamLimits,
)


def accounts(reader: Reader, name: str, item: Item) -> None:
    """A map of accounts, or an array of names."""
    found: list[AccountSettings] = []
    if isinstance(item.value, list):
        for entry in item.value:
            account = AccountSettings(text(entry))
            if _taken(account.name):
                reader.problem(entry, f'"{account.name}" is a Reserved Account')
            elif any(account.name == other.name for other in found):
                reader.problem(entry, f"Duplicate Account Entry: {account.name}")
            else:
                found.append(account)
    elif isinstance(item.value, dict):
        for key, entry in item.value.items():
            if reader.tree.is_variable(entry):
                continue
            if not isinstance(entry.value, dict):
                reader.problem(entry, "Expected map entries for accounts")
            elif _taken(key):
                reader.problem(entry, f'"{key}" is a Reserved Account')
            else:
                found.append(_account(reader, key, entry.value))
    else:
        raise ValueError(f"expected a map of accounts or an array of names, got {kind(item)}")
    reader.settings.accounts = found


def system_account(item: Item) -> str:
    """The name of the system account."""
    value = text(item)
    if not value:
        raise ValueError("an account name must not be empty")
    return value


def _taken(name: str) -> bool:
    return name == DEFAULT_ACCOUNT


def _account(reader: Reader, name: str, items: dict[str, Item]) -> AccountSettings:
    account = AccountSettings(name)
    reader.section(items, _KEYS, "accounts.", account)
    for user in account.users:
        user.account = name
        if user.permissions is None:
            user.permissions = account.default_permissions
    return account


def _users(reader: Reader, name: str, item: Item) -> None:
    reader.target.users = read_users(reader, item)


def _nkey(reader: Reader, name: str, item: Item) -> None:
    value = text(item)
    if not is_public(value, ACCOUNT):
        reader.problem(item, f'Not a valid public nkey for an account: "{value}"')
    reader.target.nkey = value


def _jetstream(reader: Reader, name: str, item: Item) -> None:
    account = reader.target
    if isinstance(item.value, bool):
        account.jetstream = {"": JetStreamLimits()} if item.value else None
    elif isinstance(item.value, str):
        word = item.value.lower()
        if word not in ("enabled", "enable", "disabled", "disable"):
            reader.problem(
                item,
                f"Expected 'enabled' or 'disabled' for string value, got '{item.value}'",
            )
        account.jetstream = {"": JetStreamLimits()} if word.startswith("enable") else None
    elif isinstance(item.value, dict):
        limits = JetStreamLimits()
        account.jetstream = {"": limits}
        reader.section(item.value, _JETSTREAM, "accounts.jetstream.", limits)
    else:
        reader.problem(item, f"Expected map, bool or string to define JetStream, got {kind(item)}")


def _size(attribute: str) -> Key:
    def apply(reader: Reader, name: str, item: Item) -> None:
        if not isinstance(item.value, int) or isinstance(item.value, bool):
            reader.problem(item, f'Expected a parseable size for "{name}", got {kind(item)}')
            return
        setattr(reader.target, attribute, item.value)

    return apply


def _switch(attribute: str) -> Key:
    def apply(reader: Reader, name: str, item: Item) -> None:
        if not isinstance(item.value, bool):
            reader.problem(item, f'Expected a parseable bool for "{name}", got {kind(item)}')
            return
        setattr(reader.target, attribute, item.value)

    return apply


def _traffic(reader: Reader, name: str, item: Item) -> None:
    # the account of a cluster's own traffic; a single server has none
    if item.value not in ("system", "owner", ""):
        reader.problem(
            item, f"Expected 'system' or 'owner' string value for \"{name}\", got {kind(item)}"
        )


def _limits(reader: Reader, name: str, item: Item) -> None:
    if not isinstance(item.value, dict):
        reader.problem(item, f"Expected account limits to be a map/struct, got {kind(item)}")
        return
    limits: AccountLimits = reader.target.limits
    for key, value in item.value.items():
        attribute = _LIMITS.get(key.lower())
        if attribute is not None:
            try:
                setattr(limits, attribute, whole(value))
            except ValueError as problem:
                reader.problem(value, f"{key}: {problem}")
        elif not reader.tree.is_variable(value):
            reader.problem(value, f'Unknown field "{key}" parsing account limits')


def _trace(reader: Reader, name: str, item: Item) -> None:
    account: AccountSettings = reader.target
    if not isinstance(item.value, dict):
        _trace_destination(reader, name, item)
    else:
        for key, value in item.value.items():
            if key.lower() == "dest":
                _trace_destination(reader, key, value)
            elif key.lower() == "sampling":
                _trace_sampling(reader, value)
            elif not reader.tree.is_variable(value):
                reader.problem(
                    value,
                    f'Unknown field "{key}" parsing account message trace map/struct "{name}"',
                )
    if account.trace_destination and not account.trace_sampling:
        account.trace_sampling = 100
    elif account.trace_sampling and not account.trace_destination:
        reader.warn(item, "Trace destination sampling ignored since no destination was set")
        account.trace_sampling = 0


def _trace_destination(reader: Reader, name: str, item: Item) -> None:
    if not isinstance(item.value, str):
        reader.problem(item, f'Field "{name}" should be a string, got {kind(item)}')
    elif not literal(item.value):
        reader.problem(item, f'Trace destination "{item.value}" is not valid')
    else:
        reader.target.trace_destination = item.value


def _trace_sampling(reader: Reader, item: Item) -> None:
    value = item.value
    if isinstance(value, str):
        try:
            value = int(value.removesuffix("%"))
        except ValueError:
            reader.problem(item, f'Invalid trace destination sampling value "{value}"')
            return
    if not isinstance(value, int) or isinstance(value, bool):
        reader.problem(item, "Trace destination sampling should be an integer or a percentage")
    elif not 0 < value <= 100:
        reader.problem(
            item,
            f"Trace destination sampling value {value} is invalid, needs to be [1..100]",
        )
    else:
        reader.target.trace_sampling = value


def _default_permissions(reader: Reader, name: str, item: Item) -> None:
    reader.target.default_permissions = read_permissions(reader, item)


def check_accounts(reader: Reader, place: Item) -> None:
    """Checks across several accounts, and with the rest of the configuration."""
    settings = reader.settings
    with_users = any(account.users for account in settings.accounts)
    if with_users and settings.user:
        reader.problem(place, "Can not have a single user/pass and accounts")
    if with_users and settings.token:
        reader.problem(place, "Can not have a token and accounts")
    seen: set[str] = set()
    for user in settings.all_users():
        key = user.nkey or user.name
        if key in seen:
            reader.problem(place, f'Duplicate {"nkey" if user.nkey else "user"} "{key}" detected')
        seen.add(key)
    names = {account.name: account for account in settings.accounts}
    system = settings.system_account or SYSTEM_ACCOUNT
    if settings.system_account not in ("", SYSTEM_ACCOUNT, *names) and settings.operator is None:
        reader.problem(place, "error resolving system account: account missing")
    if system in names and names[system].jetstream is not None:
        reader.problem(place, "Not allowed to enable JetStream on the system account")
    for text_of in _sharing_problems(reader):
        reader.problem(place, text_of)


def _sharing_problems(reader: Reader) -> Iterator[str]:
    settings = reader.settings
    if any(account.exports or account.imports for account in settings.accounts):
        from pelton.server.accounts.sharing import (
            problems,  # imports transforms, which few servers use
        )

        yield from problems(settings.accounts, no_system=settings.no_system_account)


_LIMITS = {
    "max_connections": "max_connections",
    "max_conn": "max_connections",
    "max_subscriptions": "max_subscriptions",
    "max_subs": "max_subscriptions",
    "max_payload": "max_payload",
    "max_pay": "max_payload",
    "max_leafnodes": "max_leafnodes",
    "max_leafs": "max_leafnodes",
}

_JETSTREAM: dict[str, Key] = {
    **dict.fromkeys(("max_memory", "max_mem", "mem", "memory"), _size("max_memory")),
    **dict.fromkeys(("max_store", "max_file", "max_disk", "store", "disk"), _size("max_store")),
    **dict.fromkeys(("max_streams", "streams"), _size("max_streams")),
    **dict.fromkeys(("max_consumers", "consumers"), _size("max_consumers")),
    **dict.fromkeys(
        ("max_bytes_required", "max_stream_bytes", "max_bytes"), _switch("max_bytes_required")
    ),
    **dict.fromkeys(
        ("mem_max_stream_bytes", "memory_max_stream_bytes"), _size("memory_max_stream_bytes")
    ),
    **dict.fromkeys(
        ("disk_max_stream_bytes", "store_max_stream_bytes"), _size("store_max_stream_bytes")
    ),
    "max_ack_pending": _size("max_ack_pending"),
    "cluster_traffic": _traffic,
}

_KEYS: dict[str, Key] = {
    "nkey": _nkey,
    "users": _users,
    "jetstream": _jetstream,
    "imports": imports,
    "exports": exports,
    "default_permissions": _default_permissions,
    "mappings": mappings,
    "maps": mappings,
    "limits": _limits,
    "msg_trace": _trace,
    "trace_dest": _trace,
    **DECLARED,
}
