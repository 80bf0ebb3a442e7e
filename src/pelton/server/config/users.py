"""Arrays of users, in ``authorization`` and in every account."""

from pelton.server.config.grammar import Item
from pelton.server.config.permissions import read_permissions
from pelton.server.config.reader import Key, Reader
from pelton.server.config.values import flag, kind, secret, set_to, text
from pelton.server.settings.users import CONNECTION_TYPES, User, is_bcrypt


def read_users(reader: Reader, item: Item) -> list[User]:
    """An array of users; an invalid user becomes an error. ValueError when the value is not an
    array.
    """
    if not isinstance(item.value, list):
        raise ValueError(f"expected an array of users, got {kind(item)}")
    users: list[User] = []
    for entry in item.value:
        if not isinstance(entry.value, dict):
            reader.problem(
                entry,
                f"expected a user as a map {{user: name, password: secret}}, got {kind(entry)}",
            )
            continue
        user = User()
        reader.section(entry.value, _KEYS, "user.", target=user)
        _check(reader, entry, user)
        if any((user.name, user.nkey) == (other.name, other.nkey) for other in users):
            reader.problem(entry, f'user "{user.name or user.nkey}" is defined twice')
        users.append(user)
    return users


def _check(reader: Reader, entry: Item, user: User) -> None:
    from pelton.nkeys import USER, is_public

    if user.nkey and (user.name or user.password):
        reader.problem(entry, "a user with an nkey takes no name and no password")
    elif user.nkey and not is_public(user.nkey, USER):
        reader.problem(entry, "not a valid public nkey for a user")
    elif not user.nkey and not user.name:
        reader.problem(entry, "a user needs a name, or an nkey")
    elif is_bcrypt(user.password):
        need(reader, entry, "bcrypt", "a bcrypt password")
    if user.nkey:
        need(reader, entry, "cryptography", "an nkey")


def need(reader: Reader, item: Item, package: str, what: str) -> None:
    """Add an error when a required package is not installed."""
    from importlib.util import find_spec

    if find_spec(package) is None:
        reader.problem(item, f"{what} needs the package {package}: pip install {package}")


def read_connection_types(item: Item) -> frozenset[str]:
    """An array of connection types, upper or lower case. ValueError for an unknown one."""
    parts = item.value if isinstance(item.value, list) else [item]
    found = frozenset(text(part).upper() for part in parts)
    for each in sorted(found - CONNECTION_TYPES):
        raise ValueError(f'unknown connection type "{each}"; one of {sorted(CONNECTION_TYPES)}')
    return found


def _permissions(reader: Reader, name: str, item: Item) -> None:
    reader.target.permissions = read_permissions(reader, item)


_KEYS: dict[str, Key] = {
    **dict.fromkeys(("user", "username"), set_to("name", text)),
    **dict.fromkeys(("pass", "password"), set_to("password", secret)),
    "nkey": set_to("nkey", text),
    **dict.fromkeys(("permission", "permissions", "authorization"), _permissions),
    **dict.fromkeys(
        ("allowed_connection_types", "connection_types", "clients"),
        set_to("connection_types", read_connection_types),
    ),
    "proxy_required": set_to("proxy_required", flag),
}
