"""``pelton sub --format``: a line for each message, as the user writes it.

``{time} {subject}: {data}`` has a field for each part of a message; ``{{`` is a brace. Escapes: ``\\n``, ``\\t``,
``\\0``, ``\\\\``.
"""

from __future__ import annotations

import re
import string
import time
from typing import TYPE_CHECKING, Any

import click

from pelton.cli.output import moment
from pelton.cli.session import FORMS, Session
from pelton.core.base.quoting import shown

if TYPE_CHECKING:
    from pelton.cli.messages.decoding import Decoder
    from pelton.client.sync.messages import Message

FIELDS = (
    "subject",
    "data",
    "reply",
    "size",
    "time",
    "headers",
    "stream",
    "consumer",
    "seq",
    "tries",
    "pending",
)
_HEADER = "header."
_STORED = frozenset(("stream", "consumer", "seq", "tries", "pending"))
_ESCAPES = {"n": "\n", "t": "\t", "0": "\0", "\\": "\\"}


class Line:
    """The line for a message."""

    def __init__(self, text: str) -> None:
        """ValueError names the field that is unknown."""
        text = re.sub(r"\\([nt0\\])", lambda found: _ESCAPES[found[1]], text)
        self._parts = [
            (literal, field, spec or "")
            for literal, field, spec, _ in string.Formatter().parse(text)
        ]
        for _, field, _ in self._parts:
            known = field is None or field in FIELDS or field.startswith(_HEADER)
            if not known:
                raise ValueError(
                    f'"{field}" is no field; there are {", ".join(FIELDS)}, header.NAME'
                )

    def of(self, message: Message, decoder: Decoder) -> bytes:
        """The line of a message, without its end."""
        found = []
        for literal, field, spec in self._parts:
            found.append(literal.encode())
            if field == "data" and not spec:
                found.append(decoder.raw(message.subject, message.data))
            elif field is not None:
                found.append(format(self._value(field, message, decoder), spec).encode())
        return b"".join(found)

    def _value(self, field: str, message: Message, decoder: Decoder) -> Any:
        if field.startswith(_HEADER):
            return shown(", ".join(message.headers.get_all(field.removeprefix(_HEADER))))
        stored = message.metadata if message.reply.startswith("$JS.ACK.") else None
        if field in _STORED:
            if stored is None:
                return ""
            names = {"seq": "stream_seq", "tries": "delivered"}
            return getattr(stored, names.get(field, field))
        if field == "time":
            return moment(stored.timestamp_ns if stored else time.time_ns())
        if field == "size":
            return len(message.data)
        if field == "headers":
            return shown(
                ", ".join(f"{k}: {v}" for k, vs in message.headers.lists().items() for v in vs)
            )
        if field == "data":
            return decoder.raw(message.subject, message.data).decode("utf-8", "replace")
        return shown(getattr(message, field))


if TYPE_CHECKING:
    _Kind = click.ParamType[Any]
else:
    _Kind = click.ParamType  # not generic in every supported version of click


class LineOrForm(_Kind):
    """One of the forms of all commands, which it sets, or a ``Line``."""

    name = "line"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> Line | None:
        """None for a form."""
        if value in FORMS:
            if ctx is not None and (session := ctx.find_object(Session)) is not None:
                session.choose_form(value)
            return None
        if "{" not in value:
            return self.fail(
                f'"{value}" is none of {", ".join(FORMS)}, and no line such as "{{subject}}: {{data}}"',
                param,
                ctx,
            )
        try:
            return Line(value)
        except ValueError as error:
            return self.fail(str(error), param, ctx)
