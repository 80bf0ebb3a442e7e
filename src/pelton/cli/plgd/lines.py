"""Events as lines of JSON, between the commands of ``pelton plgd``: subject, payload in base64, message id."""

from __future__ import annotations

import base64
import binascii
import json
from dataclasses import dataclass
from typing import IO, TYPE_CHECKING

import click

from pelton.errors import StreamNotFoundError, not_installed

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pelton.client.base.models import StreamInfo
    from pelton.client.sync.jetstream import JetStream


@dataclass(frozen=True, slots=True)
class Line:
    """An event as bytes, and its place in the file."""

    number: int
    subject: str
    payload: bytes
    message_id: str


def written(subject: str, payload: bytes, message_id: str) -> str:
    """The line of an event."""
    data = base64.b64encode(payload).decode()
    return f'{{"subject":{json.dumps(subject)},"data_base64":"{data}","id":{json.dumps(message_id)}}}\n'


def read(file: IO[str], name: str) -> Iterator[Line]:
    """The events of a file; ClickException for a line that is no event, with its number."""
    for number, text in enumerate(_texts(file, name), 1):
        if not text.strip():
            continue
        try:
            found = json.loads(text)
            subject, data = found["subject"], base64.b64decode(found["data_base64"], validate=True)
            message_id = found.get("id", "")
            if not isinstance(subject, str) or not isinstance(message_id, str):
                raise TypeError("subject and id are texts")
        except (ValueError, KeyError, TypeError, AttributeError, binascii.Error) as error:
            reason = f"no {error}" if isinstance(error, KeyError) else str(error)
            raise click.ClickException(f"{name}:{number}: not an event as JSON: {reason}") from None
        yield Line(number, subject, data, message_id)


def _texts(file: IO[str], name: str) -> Iterator[str]:
    """The lines of a file; ClickException if it is no text."""
    try:
        yield from file
    except UnicodeDecodeError:
        raise click.ClickException(
            f"{name}: not text: events are lines of JSON, as `pelton plgd fleet` writes them"
        ) from None


def needs(problem: ImportError) -> click.ClickException:
    """The error when the extra is not installed."""
    return click.ClickException(str(not_installed(problem, "plgd")))


def no_stream(stream: str) -> click.ClickException:
    """The error when there is no stream, which says how to make it."""
    return click.ClickException(
        f"there is no stream {stream}: pelton stream add {stream} --subjects 'plgd.>'"
    )


def stream_of(js: JetStream, stream: str) -> StreamInfo:
    """The info of a stream; if there is none, an error that says how to create it."""
    try:
        return js.stream_info(stream)
    except StreamNotFoundError:
        raise no_stream(stream) from None
