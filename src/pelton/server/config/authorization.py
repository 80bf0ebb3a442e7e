"""``authorization``: the users that may connect, and ``no_auth_user``."""

from pelton.server.config.grammar import Item
from pelton.server.config.permissions import read_permissions
from pelton.server.config.reader import Key, Reader
from pelton.server.config.users import need, read_users
from pelton.server.config.values import duration, flag, kind, secret, set_to, text
from pelton.server.settings.operator import AuthCallout
from pelton.server.settings.users import User, is_bcrypt

LONG_TIMEOUT_NS = 60 * 1_000_000_000


def authorization(reader: Reader, name: str, item: Item) -> None:
    """The map ``authorization``."""
    if not isinstance(item.value, dict):
        raise ValueError(f"expected a map, got {kind(item)}")
    reader.section(item.value, _KEYS, "authorization.")
    named = {key.lower(): value for key, value in item.value.items()}
    for key in ("default_permissions", "default_permission", "permissions"):
        if key in named:
            apply_default_permissions(reader, named[key], reader.settings.users)
    settings = reader.settings
    for value in (settings.password, settings.token):
        if is_bcrypt(value):
            need(reader, item, "bcrypt", "a bcrypt password")
    if settings.auth_timeout_ns > LONG_TIMEOUT_NS:
        reader.warn(
            named.get("timeout", item),
            f"timeout of {settings.auth_timeout_ns // 1_000_000_000} seconds is high, "
            "consider keeping it under 60 seconds",
        )


def apply_default_permissions(reader: Reader, item: Item, users: list[User]) -> None:
    """Apply the default permissions to users without their own; an error when they can't be read."""
    try:
        found = read_permissions(reader, item)
    except ValueError as problem:
        reader.problem(item, f"default_permissions: {problem}")
        return
    for user in users:
        if user.permissions is None:
            user.permissions = found


def check_authorization(reader: Reader, named: dict[str, Item], place: Item) -> None:
    """Checks across several keys; `named` are the keys of the top level, `place` is the place in
    errors about a missing one.
    """
    settings = reader.settings
    auth = named.get("authorization", place)
    if settings.users and (settings.user or settings.token):
        reader.problem(
            auth, "authorization: a single user or token and a users array exclude each other"
        )
    if settings.user and settings.token:
        reader.problem(auth, "authorization: user/password and token exclude each other")
    if settings.password and not settings.user:
        reader.problem(auth, "authorization: a password needs a user")
    name = settings.no_auth_user
    users = settings.all_users()
    if name and not users:
        reader.problem(
            named.get("no_auth_user", place),
            f'no_auth_user: "{name}" present, but users/nkeys are not defined',
        )
    elif name and not any(name in (user.name, user.nkey) for user in users):
        reader.problem(
            named.get("no_auth_user", place),
            f'no_auth_user: "{name}" not present as user or nkey in authorization block '
            "or account configuration",
        )


def _users(reader: Reader, name: str, item: Item) -> None:
    reader.settings.users = read_users(reader, item)


def _after(reader: Reader, name: str, item: Item) -> None:
    """Nothing here: authorization() reads this key after the users."""


def _callout(reader: Reader, name: str, item: Item) -> None:
    from pelton.nkeys import ACCOUNT, CURVE, is_public

    if not isinstance(item.value, dict):
        raise ValueError(f"expected a map, got {kind(item)}")
    found = AuthCallout()
    reader.section(item.value, _CALLOUT, "authorization.auth_callout.", target=found)
    if not is_public(found.issuer, ACCOUNT):
        reader.problem(item, f"{name}: issuer must be a public account nkey")
    if not found.auth_users:
        reader.problem(item, f"{name}: auth_users must name the users of the callout service")
    if found.xkey and not is_public(found.xkey, CURVE):
        reader.problem(item, f"{name}: xkey must be a public curve key")
    need(reader, item, "cryptography", name)
    reader.settings.auth_callout = found


def texts(item: Item) -> list[str]:
    """A text, or an array of texts."""
    parts = item.value if isinstance(item.value, list) else [item]
    return [text(part) for part in parts]


_CALLOUT: dict[str, Key] = {
    "issuer": set_to("issuer", text),
    **dict.fromkeys(("account", "acc"), set_to("account", text)),
    **dict.fromkeys(("auth_users", "users"), set_to("auth_users", texts)),
    **dict.fromkeys(("xkey", "key"), set_to("xkey", text)),
    "allowed_accounts": set_to("allowed_accounts", texts),
}

_KEYS: dict[str, Key] = {
    **dict.fromkeys(("user", "username"), set_to("user", text)),
    **dict.fromkeys(("pass", "password"), set_to("password", secret)),
    "token": set_to("token", secret),
    "timeout": duration("auth_timeout_ns", 1),
    "users": _users,
    **dict.fromkeys(("default_permissions", "default_permission", "permissions"), _after),
    **dict.fromkeys(("auth_callout", "auth_hook"), _callout),
    "proxy_required": set_to("proxy_required", flag),
}
