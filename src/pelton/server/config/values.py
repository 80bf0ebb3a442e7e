"""Values of a configuration file: converters from an Item to a plain value, and makers of keys.

A converter raises ValueError with the expected form.
"""

import re
from typing import TYPE_CHECKING

from pelton.server.config.grammar import Item
from pelton.server.config.reader import Convert, Key, Reader
from pelton.server.units import SECOND_NS, parse_address, parse_duration

if TYPE_CHECKING:
    from collections.abc import Mapping

# -- converters: from an Item to the type of a key; ValueError gives the expected form


def text(item: Item) -> str:
    """A text; a number is taken as it was written."""
    if isinstance(item.value, str):
        return item.value
    # Names, passwords and paths may look like numbers.
    if isinstance(item.value, int | float) and not isinstance(item.value, bool):
        return item.word or str(item.value)
    raise ValueError(f"expected a text, got {kind(item)}")


def secret(item: Item) -> str:
    """A password, its bcrypt hash, or a token."""
    return text(item)


def server_name(item: Item) -> str:
    """A name without spaces."""
    value = text(item)
    if not value or any(c.isspace() for c in value):
        raise ValueError("a server name must not be empty or contain spaces")
    return value


def domain(item: Item) -> str:
    """A JetStream domain."""
    value = text(item)
    if not re.fullmatch(r"[^\s.*>]+", value):
        raise ValueError('a domain must not be empty or contain a space, ".", "*" or ">"')
    return value


def flag(item: Item) -> bool:
    """true or false."""
    if isinstance(item.value, bool):
        return item.value
    raise ValueError(f"expected true or false, got {kind(item)}")


def whole(item: Item) -> int:
    """A whole number."""
    if isinstance(item.value, int) and not isinstance(item.value, bool):
        return item.value
    raise ValueError(f"expected a whole number, got {kind(item)}")


def between(low: int, high: int) -> Convert:
    """A whole number in a range, both ends included."""

    def convert(item: Item) -> int:
        number = whole(item)
        if not low <= number <= high:
            raise ValueError(f"{number} is not between {low} and {high}")
        return number

    return convert


def limit_size(item: Item) -> int:
    """A jetstream size; a quoted one must end in K, M, G or T, powers of 1024."""
    if isinstance(item.value, str):
        found = re.fullmatch(r"(\d+)([KMGT])", item.value)
        if found is None:
            raise ValueError("sizes defined as strings must end in K, M, G, T")
        scale: int = 1024 ** ("KMGT".index(found[2]) + 1)
        return int(found[1]) * scale
    return whole(item)


def kind(item: Item) -> str:
    """The type of an item's value, for messages."""
    value = item.value
    if isinstance(value, dict):
        return "a map"
    if isinstance(value, list):
        return "an array"
    if isinstance(value, bool):
        return "true" if value else "false"
    return f'"{value}"' if isinstance(value, str) else str(value)


# -- makers of keys


def set_to(attribute: str, convert: Convert) -> Key:
    """A key that sets an attribute of the reader's target."""

    def apply(reader: Reader, name: str, item: Item) -> None:
        setattr(reader.target, attribute, convert(item))

    return apply


_VARIABLE = re.compile(r"\$\w+")


def folder(attribute: str) -> Key:
    """A folder; one that begins with a variable in quotes is taken as it stands, with a warning."""

    def apply(reader: Reader, name: str, item: Item) -> None:
        path = text(item)
        setattr(reader.target, attribute, path)
        if found := _VARIABLE.match(path):
            reader.warn(
                item, f"{name}: variables in quotes are not replaced; write {found[0]} without them"
            )

    return apply


def duration(attribute: str, low_ns: int = 0) -> Key:
    """A Go duration; a bare whole number counts as seconds, with a warning."""

    def apply(reader: Reader, name: str, item: Item) -> None:
        number = isinstance(item.value, int | float) and not isinstance(item.value, bool)
        if number and item.word[-1:] == "m":
            # The grammar reads `2m` as two million, but here it means two minutes.
            ns = parse_duration(item.word)
        elif isinstance(item.value, int | float) and number:
            ns = round(item.value * SECOND_NS)
            if attribute != "auth_timeout_ns":
                reader.outdate(item, f'{name} should be a duration such as "{item.value}s"')
        else:
            ns = parse_duration(text(item))
        if ns < low_ns:
            raise ValueError(f"has to be at least {low_ns / SECOND_NS:g} seconds")
        setattr(reader.target, attribute, ns)

    return apply


def address(host: str, port: str) -> Key:
    """A key that sets two attributes from ``host:port``."""

    def apply(reader: Reader, name: str, item: Item) -> None:
        target = reader.target
        found = parse_address(text(item), getattr(target, host), getattr(target, port))
        setattr(target, host, found[0])
        setattr(target, port, found[1])

    return apply


def port(item: Item) -> int:
    """A port, or -1 for any free port."""
    number = whole(item)
    if number != -1 and not 0 <= number <= 65535:
        raise ValueError(f"{number} is not a port: a number up to 65535, or -1 for any free one")
    return number


def count(item: Item) -> int:
    """A limit: 0 and -1 mean no limit."""
    number = whole(item)
    if number < -1:
        raise ValueError(f"{number} is not a limit: a number, 0 or -1 for none")
    return max(number, 0)


def span(item: Item) -> int:
    """A Go duration in nanoseconds."""
    return parse_duration(text(item))


def section(table: "Mapping[str, Key]", where: str) -> Key:
    """A key that is a map of keys."""

    def apply(reader: Reader, name: str, item: Item) -> None:
        if not isinstance(item.value, dict):
            raise ValueError(f"expected a map, got {kind(item)}")
        reader.section(item.value, table, where)

    return apply


def no_queue(reader: Reader, name: str, item: Item) -> None:
    """Bounds of a queue that this server does not have: accepted without effect."""
    limit_size(item)
    reader.warn(item, f"{name} has no effect: the server has no such queue")
