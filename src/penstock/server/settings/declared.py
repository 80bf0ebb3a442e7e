"""Declared streams and consumers, as plain values."""

from penstock.server.fast_dataclass import FastDataclass, field

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


class Declared(FastDataclass):
    """One stream or consumer that has to be there before the first client is served."""

    fields: "dict[str, Any]"  # its configuration, as the JSON API has it
    consumer: str = ""  # "": it is a stream
    stream: str = ""  # its name, or that of the consumer's stream
    account: str = ""  # "": the default account
    shown: str = ""  # how messages call it, such as `bucket "profiles"`
    place: str = field(default="", compare=False)  # file:line:column
