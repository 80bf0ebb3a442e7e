"""Permissions in a configuration: of users, account defaults and leaf nodes.

Each function returns a plain value and adds errors to the reader's list.
"""

from pelton.core.protocol.subjects import valid
from pelton.server.config.grammar import Item
from pelton.server.config.reader import Key, Reader
from pelton.server.config.values import kind, span, text, whole
from pelton.server.settings.users import Permissions, Responses, SubjectPermission


def read_permissions(reader: Reader, item: Item) -> Permissions:
    """A map ``{publish: ..., subscribe: ..., allow_responses: ...}``. ValueError when the value is
    not a map.
    """
    if not isinstance(item.value, dict):
        raise ValueError(f"expected permissions as a map, got {kind(item)}")
    found = Permissions()
    reader.section(item.value, _KEYS, "permissions.", target=found)
    if found.responses is not None and found.publish.allow is None:
        found.publish.allow = []  # allow_responses replaces the permission to publish everything
    return found


def read_subjects(item: Item, *, queues: bool = False) -> list[str]:
    """A subject or an array of them; with `queues`, a queue may follow after a blank. ValueError
    for an invalid subject.
    """
    parts = item.value if isinstance(item.value, list) else [item]
    subjects = [text(part) for part in parts]
    for subject in subjects:
        _check(subject, queues)
    return subjects


def _check(subject: str, queues: bool) -> None:
    if valid(subject) and not any(c.isspace() for c in subject):
        return
    words = subject.split()
    if not queues or len(words) != 2:
        raise ValueError(f'subject "{subject}" is not a valid subject')
    if not valid(words[0]):
        raise ValueError(f'subject "{words[0]}" is not a valid subject')
    if not valid(words[1]):
        raise ValueError(f'queue "{words[1]}" is not a valid queue')


def _rules(attribute: str, *, queues: bool) -> Key:
    def allow(reader: Reader, name: str, item: Item) -> None:
        reader.target.allow = read_subjects(item, queues=queues)

    def deny(reader: Reader, name: str, item: Item) -> None:
        reader.target.deny = read_subjects(item, queues=queues)

    table: dict[str, Key] = {"allow": allow, "deny": deny}

    def apply(reader: Reader, name: str, item: Item) -> None:
        rules = SubjectPermission()
        if isinstance(item.value, dict):
            reader.section(item.value, table, f"permissions.{attribute}.", target=rules)
        else:
            rules.allow = read_subjects(item, queues=queues)
        setattr(reader.target, attribute, rules)

    return apply


def _responses(reader: Reader, name: str, item: Item) -> None:
    if item.value is True:
        reader.target.responses = Responses()
    elif isinstance(item.value, dict):
        found = Responses()
        reader.section(item.value, _RESPONSES, "permissions.allow_responses.", target=found)
        reader.target.responses = found
    elif item.value is not False:
        raise ValueError(f"expected true, false or a map {{max, expires}}, got {kind(item)}")


def _most(reader: Reader, name: str, item: Item) -> None:
    reader.target.max = whole(item) or reader.target.max


def _expires(reader: Reader, name: str, item: Item) -> None:
    reader.target.expires_ns = span(item) or reader.target.expires_ns


_RESPONSES: dict[str, Key] = {
    **dict.fromkeys(("max", "max_msgs", "max_messages", "max_responses"), _most),
    **dict.fromkeys(("expires", "expiration", "ttl"), _expires),
}
_PUBLISH = _rules("publish", queues=False)
_SUBSCRIBE = _rules("subscribe", queues=True)
_KEYS: dict[str, Key] = {
    **dict.fromkeys(("pub", "publish", "import"), _PUBLISH),
    **dict.fromkeys(("sub", "subscribe", "export"), _SUBSCRIBE),
    **dict.fromkeys(("allow_responses", "publish_allow_responses"), _responses),
}
