"""`nats` of March 2020: the commands of `pelton`, of which some print the texts of that time.

There is one parser, and one way to connect. A command that had another text in 2020 asks
`Session.of_2020` and calls a function of this module.
"""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING

import click
from msgspec.structs import replace

from pelton.api.codec import decode_request, decode_response, encode
from pelton.api.dialects.configurations import DialectError, OldConsumer, consumer_of
from pelton.cli.early.asking import Failed, ask
from pelton.cli.early.pages import differences, stream_page
from pelton.cli.failures import DONE, FAILED
from pelton.cli.prompts import confirm, may_ask
from pelton.errors import StreamNotFoundError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pelton.client.base.models import ConsumerConfig, StreamConfig, StreamInfo
    from pelton.client.sync import Client
    from pelton.client.sync.jetstream import JetStream

_OLD_FIELDS = frozenset(
    {"delivery_subject", "deliver_all", "deliver_last", "start_time", "stream_seq"}
)


def main(arguments: Sequence[str]) -> int:
    """Run `nats`; the exit status is that of `pelton`."""
    from pelton.cli.__main__ import main as pelton

    return pelton(arguments, "nats")


def print_data(client: Client, subject: str) -> None:
    """Print the answer of the API of 2020, which is JSON. Failed: it is a refusal."""
    answer = ask(client, subject)
    if answer.startswith(b"-ERR"):
        raise Failed(answer[5:].decode().strip("'"))
    print(answer.decode())


def pick(js: JetStream, name: str, subjects: str | None) -> StreamInfo:
    """The info of a stream. Failed, with the text of 2020: it is not there."""
    try:
        return js.stream_info(name, subjects_filter=subjects)
    except StreamNotFoundError as error:
        why = error.description if js.stream_names() else "no Streams are defined"
        raise Failed(f"could not pick a Stream to operate on: {why}") from None


def sure(question: str) -> None:
    """Ask until the answer is yes, as `prompts.confirm` does; Abort for no."""
    if not may_ask():
        confirm(question)
        return
    try:
        yes = input(f"? {question} (y/N) ").strip().lower() in ("y", "yes")
    except EOFError:
        yes = False
    if sys.stdout.isatty():
        print(f"\x1b[1A\x1b[2K? {question} {'Yes' if yes else 'No'}", flush=True)
    if not yes:
        raise click.Abort


def edit_streams(
    js: JetStream,
    changes: Sequence[tuple[StreamConfig, StreamConfig]],
    *,
    force: bool,
    dry_run: bool,
) -> int:
    """Show the differences of (present, wanted) configurations, ask, and apply; the exit status."""
    texts = [differences(*change) for change in changes]
    for text in texts:
        print(f"Differences (-old +new):\n{text}" if text else "No difference in configuration")
    different = [wanted for (_, wanted), text in zip(changes, texts, strict=True) if text]
    if dry_run or not different:
        return FAILED if different else DONE
    if not force:
        sure(f"Really edit Stream {', '.join(each.name for each in different)}")
    for wanted in different:
        info = js.update_stream(wanted)
        print(f"Stream {info.config.name} was updated\n")
        print(stream_page(info))
    return DONE


def stream_config(text: bytes, place: str, present: StreamConfig) -> StreamConfig:
    """The configuration with the fields of a file in place of its own; Mistakes."""
    from pelton.api import StreamConfig as Wire
    from pelton.cli.changes import read_fields
    from pelton.client.base.models import StreamConfig

    found = read_fields(text, place, Wire)
    given = decode_response(StreamConfig, found)
    return replace(present, **{name: getattr(given, name) for name in json.loads(found)})


def consumer_config(text: bytes, place: str) -> ConsumerConfig:
    """The configuration of a consumer in a file of 2020 or of today; Mistakes."""
    from pelton.apply.single import keys_in
    from pelton.cli.changes import of_file, read_fields
    from pelton.cli.consumers.fields import read_config
    from pelton.cli.editing import Mistakes
    from pelton.client.base.models import ConsumerConfig

    if not _OLD_FIELDS & of_file(text, place, lambda plain: keys_in(plain, place)):
        return read_config(text, place)
    old = decode_request(OldConsumer, read_fields(text, place, OldConsumer))
    try:
        return decode_response(ConsumerConfig, encode(replace(consumer_of(old), metadata={})))
    except DialectError as problem:
        raise Mistakes(f"{place}: {problem}") from None
