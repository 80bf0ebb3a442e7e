"""``pelton explain``: why a consumer does not deliver a message."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from pelton.cli.output import print_json
from pelton.cli.session import Session, command
from pelton.cli.values import Whole
from pelton.core.base.quoting import shown

if TYPE_CHECKING:
    from pelton.cli.consumers.explaining import Message, Pending
    from pelton.client.base.models import ConsumerInfo
    from pelton.client.sync import Client
    from pelton.client.sync.jetstream import JetStream


@click.command()
@click.argument("stream")
@click.argument("consumer")
@click.argument("seq", type=Whole(1), required=False)
@command
@click.pass_obj
def explain(session: Session, stream: str, consumer: str, seq: int | None) -> None:
    """Say why CONSUMER of STREAM does not deliver the message SEQ, or anything.

    With --store the answer comes from the folder, which has no information about waiting clients.
    """
    from pelton.cli.consumers.explaining import Facts
    from pelton.cli.consumers.explaining import explain as reasons_of

    with session.connect() as client:
        js = session.jetstream(client)
        message = _message(js, stream, js.consumer_info(stream, consumer), seq) if seq else None
        # asked last, so that their states are not older than the message
        info, about = js.consumer_info(stream, consumer), js.stream_info(stream)
        pending = _pending(session, client, info, seq) if seq else None
    live = not session.store
    facts = Facts(about.config, about.state, info, seq or 0, message, pending, live)
    reasons = reasons_of(facts)
    if session.as_json:
        rows = [{"kind": r.kind, "final": r.final, "text": r.text} for r in reasons]
        print_json({"stream": stream, "consumer": consumer, "seq": seq, "reasons": rows})
        return
    for reason in reasons:
        print(f"{reason.kind}: {shown(reason.text)}")


def _message(js: JetStream, stream: str, info: ConsumerInfo, seq: int) -> Message | None:
    from pelton.cli.consumers.explaining import Message
    from pelton.errors import MessageNotFoundError

    try:
        found = js.get_message(stream, seq)
    except MessageNotFoundError:
        return None
    newer, config = 0, info.config
    if config is not None and config.deliver_policy in ("last", "last_per_subject"):
        filters = [config.filter_subject] if config.filter_subject else config.filter_subjects
        same = config.deliver_policy == "last_per_subject"
        for subject in [found.subject] if same else filters or [">"]:
            try:
                following = js.get_message(stream, seq + 1, next_by_subject=subject)
            except MessageNotFoundError:
                continue
            if following.timestamp_ns < info.created:
                newer = max(newer, following.seq)
    return Message(found.seq, found.timestamp_ns, found.subject, newer)


def _pending(session: Session, client: Client, info: ConsumerInfo, seq: int) -> Pending | None:
    """Whether the message waits for an ack, exactly; None if that is not known."""
    from pelton.cli.store.opening import is_store

    if session.store and is_store(session.store):
        return _pending_in(session, info.stream_name, info.name, seq)
    return _pending_by(client, info, seq)


def _pending_in(session: Session, stream: str, consumer: str, seq: int) -> Pending | None:
    """The state of the message in the folder; None if it has no state of the consumer. StoreError."""
    from pelton.cli.consumers.explaining import Pending
    from pelton.cli.store.opening import vault
    from pelton.core.base.readonly_disk import ReadOnlyDisk
    from pelton.store.describe import consumer_states
    from pelton.store.layout import find

    disk = ReadOnlyDisk()
    label = "/".join(part for part in (session.store_account, stream) if part)
    states, _ = consumer_states(disk, find(disk, session.store, vault()).one(label))
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


def _pending_by(client: Client, info: ConsumerInfo, seq: int) -> Pending | None:
    """The answer to a request of 2020, which has the messages without an ack; None: this server has
    none of these requests, or an acknowledged message looks like one whose only delivery is over.
    """
    import json

    from pelton.cli.consumers.explaining import Pending
    from pelton.errors import PeltonError

    assert info.config is not None  # consumer_info always has it
    try:
        subject = f"$JS.STREAM.{info.stream_name}.CONSUMER.{info.name}.INFO"
        state = json.loads(client.request(subject, timeout=1.0).data)["state"]
        waits, again = state["pending"] or {}, state["redelivered"] or {}
    except (PeltonError, ValueError, KeyError, TypeError):
        return None
    if str(seq) in waits:
        return Pending(1 + again.get(str(seq), 0), waits[str(seq)])
    if str(seq) in again:
        return Pending(spent=True)
    return None if info.config.max_deliver == 1 else Pending()
