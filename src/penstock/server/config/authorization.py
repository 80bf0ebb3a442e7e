"""``authorization``: who may connect."""

from penstock.server.config.grammar import Item
from penstock.server.config.reader import Key, Reader
from penstock.server.config.values import duration, kind, secret, set_to, text
from penstock.server.settings.users import User


def authorization(reader: Reader, name: str, item: Item) -> None:
    """The map ``authorization``."""
    if not isinstance(item.value, dict):
        raise ValueError(f"expected a map, got {kind(item)}")
    reader.section(item.value, _KEYS, "authorization.")


def users(reader: Reader, name: str, item: Item) -> None:
    """An array of users."""
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
        for key, value in entry.value.items():
            attribute = _FIELDS.get(key.lower())
            if attribute is None:
                reader.section({key: value}, {}, "user.")
            else:
                setattr(user, attribute, secret(value) if attribute == "password" else text(value))
        if not user.name:
            reader.problem(entry, "a user needs a name")
        elif any(user.name == other.name for other in users):
            reader.problem(entry, f'user "{user.name}" is there twice')
        users.append(user)
    reader.settings.users = users


_FIELDS = {"user": "name", "username": "name", "pass": "password", "password": "password"}

_KEYS: dict[str, Key] = {
    "user": set_to("user", text),
    "username": set_to("user", text),
    "pass": set_to("password", secret),
    "password": set_to("password", secret),
    "token": set_to("token", secret),
    "timeout": duration("auth_timeout_ns", 1),
    "users": users,
}
