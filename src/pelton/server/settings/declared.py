"""Declared streams and consumers, as plain values."""

from pelton.server.fast_dataclass import FastDataclass, field

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


class Declared(FastDataclass):
    """A stream or consumer that must exist before the first client is served."""

    fields: "dict[str, Any]"  # its configuration in the form of the JSON API
    consumer: str = ""  # "": a stream
    stream: str = ""  # name of the stream, or of the consumer's stream
    account: str = ""  # "": the default account
    shown: str = ""  # name in log lines and errors, such as `bucket "profiles"`
    place: str = field(default="", compare=False)  # file:line:column
