"""Declared streams and consumers, as plain values."""

from msgspec import Struct
from msgspec.structs import astuple

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


class Declared(Struct):
    """A stream or consumer that must exist before the first client is served."""

    fields: "dict[str, Any]"  # its configuration in the form of the JSON API
    consumer: str = ""  # "": a stream
    stream: str = ""  # name of the stream, or of the consumer's stream
    account: str = ""  # "": the default account
    shown: str = ""  # name in log lines and errors, such as `bucket "profiles"`
    place: str = ""  # file:line:column

    def __eq__(self, other: object) -> bool:
        """Equal wherever they are declared."""
        return isinstance(other, Declared) and astuple(self)[:-1] == astuple(other)[:-1]
