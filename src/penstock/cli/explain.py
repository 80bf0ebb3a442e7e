"""``penstock explain``: why a consumer does not deliver a message."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from penstock.cli.output import print_json
from penstock.cli.session import Session, command
from penstock.core.base.quoting import shown

if TYPE_CHECKING:
    from penstock.cli.explaining import Message, Pending
    from penstock.client import BlockingJetStream, ConsumerInfo


@click.command()
@click.argument("stream")
@click.argument("consumer")
@click.argument("seq", type=click.IntRange(1), required=False)
@click.option(
    "--store",
    type=click.Path(file_okay=False),
    help="The server's store folder, which knows what waits for an ack.",
)
@command
@click.pass_obj
def explain(
    session: Session, stream: str, consumer: str, seq: int | None, store: str | None
) -> None:
    """Say why CONSUMER of STREAM does not deliver the message SEQ, or anything."""
    from penstock.cli.explaining import Facts
    from penstock.cli.explaining import explain as reasons_of

    with session.connect() as client:
        js = session.jetstream(client)
        message = _message(js, stream, js.consumer_info(stream, consumer), seq) if seq else None
        # asked last, so that their states are not older than the message
        info, about = js.consumer_info(stream, consumer), js.stream_info(stream)
    pending = _pending(store, stream, consumer, seq) if store and seq else None
    facts = Facts(about.config, about.state, info, seq or 0, message, pending)
    reasons = reasons_of(facts)
    if session.as_json:
        rows = [{"kind": r.kind, "final": r.final, "text": r.text} for r in reasons]
        print_json({"stream": stream, "consumer": consumer, "seq": seq, "reasons": rows})
        return
    for reason in reasons:
        print(f"{reason.kind}: {shown(reason.text)}")


def _message(js: BlockingJetStream, stream: str, info: ConsumerInfo, seq: int) -> Message | None:
    from penstock.cli.explaining import Message
    from penstock.errors import MessageNotFound

    try:
        found = js.get_message(stream, seq)
    except MessageNotFound:
        return None
    newer, config = 0, info.config
    if config is not None and config.deliver_policy in ("last", "last_per_subject"):
        filters = [config.filter_subject] if config.filter_subject else config.filter_subjects
        same = config.deliver_policy == "last_per_subject"
        for subject in [found.subject] if same else filters or [">"]:
            try:
                following = js.get_message(stream, seq + 1, next_by_subject=subject)
            except MessageNotFound:
                continue
            if following.timestamp_ns < info.created:
                newer = max(newer, following.seq)
    return Message(found.seq, found.timestamp_ns, found.subject, newer)


def _pending(store: str, stream: str, consumer: str, seq: int) -> Pending | None:
    """What the folder says of the message; None if it has no state of the consumer. StoreError."""
    from penstock.cli.explaining import Pending
    from penstock.cli.store_session import more_files, vault
    from penstock.core.base.readonly_disk import ReadOnlyDisk
    from penstock.store.describe import consumer_states
    from penstock.store.layout import find

    more_files()
    disk = ReadOnlyDisk()
    states, _ = consumer_states(disk, find(disk, store, vault()).one(stream))
    for each in states:
        state = each["state"]
        if each["name"] != consumer or not isinstance(state, dict):
            continue
        if seq in state["spent"]:
            return Pending(spent=True)
        for entry in state["unacknowledged"]:
            if entry["stream_seq"] == seq:
                return Pending(entry["deliveries"], entry["time_ns"])
        return Pending() if seq <= state["delivered_stream_seq"] else None
    return None
