"""``pelton sub``: prints the messages of subjects, as they come or out of a stream."""

from __future__ import annotations

import os
import sys
import time
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from pelton.cli.messages.decoding import Decoder, decoded
from pelton.cli.messages.lines import LineOrForm
from pelton.cli.messages.showing import (
    arrived,
    end_of_wait,
    hear_out,
    print_message,
    show_message,
    told_of_losses,
)
from pelton.cli.output import number, print_json_line, print_table, size
from pelton.cli.session import Session, command
from pelton.cli.values import DURATION, Whole
from pelton.core.base.quoting import shown

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pelton.client.base.message import Headers
    from pelton.client.sync import Client
    from pelton.client.sync.jetstream import JetStream
    from pelton.client.sync.messages import Message

_STREAMING = ("stream", "durable", "start_sequence", "deliver", "since", "at_end")
_FETCH_MAX = 256
_AGAIN_S = 1.0
_INTERVAL_NS = 1_000_000_000


@click.command()
@click.argument("subjects", nargs=-1, metavar="[SUBJECT]...")
@click.option("-q", "--queue", default="", help="Queue group.")
@click.option("-n", "--count", default=0, type=Whole(0), help="End after this many messages.")
@click.option("--wait", type=DURATION, default=0, help="End after this time without a message.")
@click.option("-r", "--raw", is_flag=True, help="Only the payloads, each with a line end.")
@click.option("-i", "--inbox", is_flag=True, help="Subscribe to a new inbox.")
@click.option("--match-replies", is_flag=True, help="Also print the answers to requests.")
@click.option("-I", "--ignore-subject", "ignored", multiple=True, help="Leave out this subject.")
@click.option("--headers-only", is_flag=True, help="No payloads.")
@click.option("--subjects-only", is_flag=True, help="Only the subjects.")
@click.option("-t", "--timestamp", is_flag=True, help="With the time of each message.")
@click.option("-d", "--delta-time", is_flag=True, help="With the time since the start.")
@click.option(
    "--dump",
    metavar="FOLDER",
    help="Write a JSON file for each message, the payload in base64; -: to stdout, NULs between.",
)
@click.option("--report-subjects", is_flag=True, help="Count messages by subject, and print that.")
@click.option(
    "--report-subscriptions", is_flag=True, help="Count messages by subscription, and print that."
)
@click.option("--graph", is_flag=True, help="Draw how many messages arrive, instead of them.")
@click.option("--direct", is_flag=True, help="Read a stream with direct gets, without a consumer.")
@click.option("--report-top", type=Whole(1), default=10, help="Rows of the report.")
@click.option("--stream", default=None, help="Read this stream.")
@click.option("--durable", default=None, help="Read a stream with this durable consumer, and ack.")
@click.option(
    "--ack/--no-ack",
    "acks",
    default=None,
    help="Acknowledge messages of a stream; the default with --durable.",
)
@click.option("--start-sequence", type=Whole(1), help="Read a stream from here on.")
@click.option("--all", "deliver", flag_value="all", help="Read all of a stream.")
@click.option(
    "--new", "deliver", flag_value="new", help="Read messages that a stream stores from now on."
)
@click.option("--last", "deliver", flag_value="last", help="Begin with the newest message.")
@click.option(
    "--last-per-subject",
    "deliver",
    flag_value="last_per_subject",
    help="Begin with the newest message of each subject.",
)
@click.option("--since", type=DURATION, default=None, help="Begin with messages of this age.")
@click.option("-T", "--terminate-at-end", "at_end", is_flag=True, help="End when all is read.")
@click.option(
    "--format",
    "line",
    type=LineOrForm(),
    default=None,
    metavar="FORM",
    help='table, json ..., or a line for each message: "{time} {subject}: {data}".',
)
@decoded
@command
@click.pass_obj
def sub(session: Session, /, subjects: tuple[str, ...], decoder: Decoder, **asked: Any) -> None:
    """Print the messages that arrive on SUBJECT until interrupted.

    With --stream or an option that says where to begin, the messages come out of a stream: of
    --stream, or of the one that stores SUBJECT; from its first message on unless an option names
    another place. When the connection breaks, the command connects and
    subscribes again; messages that no stream stores are missed meanwhile.
    """
    streaming = any(asked[name] not in (None, False) for name in _STREAMING)
    if not (subjects or asked["inbox"] or asked["stream"]):
        raise click.UsageError("Missing argument 'SUBJECT'.")
    if streaming and (asked["queue"] or asked["inbox"] or asked["match_replies"]):
        raise click.UsageError("a stream has no --queue, --inbox and --match-replies")
    if asked["graph"]:
        if streaming or asked["direct"]:
            raise click.UsageError("--graph is for subjects; see pelton stream graph")
        _draw(session, subjects)
        return
    if asked["direct"] and (asked["durable"] or asked["acks"] or asked["deliver"] == "last"):
        raise click.UsageError("--direct has no --durable, --ack and --last")
    printer = _Printer(session, decoder, asked)
    acked = 0
    with told_of_losses(), session.connect(lasting=True) as client:
        coming: Any  # messages of the client, or _Direct
        if asked["direct"]:
            coming = _direct(session.jetstream(client), subjects, asked)
        elif streaming:
            coming = _stored(session.jetstream(client), subjects, asked)
        else:
            coming = _arriving(client, subjects, asked, printer)
        try:
            for message in coming:
                if message.subject in asked["ignored"]:
                    continue
                printer.take(message)
                wanted = bool(asked["durable"]) if asked["acks"] is None else asked["acks"]
                if wanted and message.reply.startswith("$JS.ACK."):
                    message.ack()
                    acked += 1
                if printer.taken == asked["count"]:
                    break
            else:
                end_of_wait(client)
            if acked:  # without acks the command owes the server nothing, which may be gone by now
                client.flush()
        finally:
            printer.end()


class _Printer:
    """Prints messages in the form that was asked for, and numbers them."""

    def __init__(self, session: Session, decoder: Decoder, asked: dict[str, Any]) -> None:
        self.taken = 0
        self.pattern = ""
        """The subscription that the next message is of."""
        self._session = session
        self._decoder = decoder
        self._asked = asked
        self._start = time.monotonic()
        self._counts: Counter[str] = Counter()
        self._bytes: Counter[str] = Counter()
        self._requests: dict[str, int] = {}
        """Subjects of awaited answers, and the number of the request."""

    def listens(self, subjects: list[str]) -> None:
        """Say on stderr that the subscriptions exist."""
        quiet = (
            self._asked["raw"]
            or self._asked["line"]
            or self._session.as_json
            or self._asked["dump"] == "-"
        )
        if not quiet:
            print(shown(f"listening on {', '.join(subjects)}"), file=sys.stderr, flush=True)

    def wants(self, message: Message, inboxes: str) -> bool:
        """Whether a message is printed: under the inboxes only an answer to a request that was."""
        answers = self._asked["match_replies"] and message.subject.startswith(inboxes)
        return not answers or message.subject in self._requests

    def take(self, message: Message) -> None:
        """Print a message."""
        self.taken += 1
        asked = self._asked
        if message.reply:
            self._requests[message.reply] = self.taken
        if asked["report_subjects"] or asked["report_subscriptions"]:
            counted = message.subject if asked["report_subjects"] else self.pattern
            self._counts[counted] += 1
            self._bytes[counted] += len(message.data)
        elif asked["line"] is not None:
            sys.stdout.buffer.write(asked["line"].of(message, self._decoder) + b"\n")
            sys.stdout.buffer.flush()
        elif asked["dump"] is not None:
            self._dump(message, asked["dump"])
        elif asked["subjects_only"]:
            if self._session.as_json:
                print_json_line({"subject": message.subject})
            else:
                print(shown(message.subject), flush=True)
        elif asked["headers_only"] and not self._session.as_json:
            show_message(message, self._mark(message), self._decoder, body=False)
        else:
            print_message(self._session, message, asked["raw"], self._mark(message), self._decoder)

    def _mark(self, message: Message) -> str:
        parts = [f"[#{self.taken}] "]
        if self._asked["timestamp"]:
            parts.append(time.strftime("%H:%M:%S "))
        if self._asked["delta_time"]:
            parts.append(f"+{time.monotonic() - self._start:.3f}s ")
        if (request := self._requests.get(message.subject)) is not None:
            parts.append(f"answer to #{request}: ")
        return "".join(parts)

    def _dump(self, message: Message, folder: str) -> None:
        """Write a message as the ``nats`` command does: its fields, the payload in base64."""
        import base64
        import json

        fields = {
            "Subject": message.subject,
            "Reply": message.reply,
            "Header": message.headers.lists() or None,
            "Data": base64.b64encode(message.data).decode(),
        }
        text = json.dumps(fields, ensure_ascii=False)
        if folder == "-":
            sys.stdout.write(text + "\0")
            sys.stdout.flush()
            return
        # only the user may read what others sent
        Path(folder).mkdir(mode=0o700, parents=True, exist_ok=True)
        descriptor = os.open(
            Path(folder) / f"{self.taken}.json", os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600
        )
        with open(descriptor, "w", encoding="utf-8") as file:
            if hasattr(os, "fchmod"):  # not on Windows
                os.fchmod(descriptor, 0o600)  # the file may have existed
            file.write(text + "\n")

    def end(self) -> None:
        """Print the report, if one was asked for."""
        by_subject = self._asked["report_subjects"]
        if not (by_subject or self._asked["report_subscriptions"]):
            return
        what = "Subject" if by_subject else "Subscription"
        rows = self._counts.most_common(self._asked["report_top"])
        if self._session.as_json:
            for subject, count in rows:
                print_json_line(
                    {what.lower(): subject, "messages": count, "bytes": self._bytes[subject]}
                )
            return
        cells = [(subject, number(n), size(self._bytes[subject])) for subject, n in rows]
        print_table((what, "Messages", "Size"), cells, right=frozenset(("Messages", "Size")))


def _arriving(
    client: Client, subjects: tuple[str, ...], asked: dict[str, Any], printer: _Printer
) -> Iterator[Message]:
    """The messages on the subjects, for each subject in the order of arrival."""
    inboxes = client.new_inbox().rpartition(".")[0] + "."
    wanted = [*subjects, *([client.new_inbox()] if asked["inbox"] else [])]
    listening = [client.subscribe(subject, queue=asked["queue"]) for subject in wanted]
    if asked["match_replies"]:
        root = inboxes.split(".")[0]
        inboxes = f"{root}."
        wanted = [*wanted, f"{root}.>"]
        listening.append(client.subscribe(f"{root}.>"))
    hear_out(client)
    printer.listens(wanted[: len(subjects) + bool(asked["inbox"])])
    seconds = asked["wait"] / 1e9 if asked["wait"] else float("inf")
    while client.wait_until(lambda: any(each.pending for each in listening), seconds):
        for each, printer.pattern in zip(listening, wanted, strict=True):
            for message in arrived(each):
                if printer.wants(message, inboxes):
                    yield message


def _stored(js: JetStream, subjects: tuple[str, ...], asked: dict[str, Any]) -> Iterator[Message]:
    """The messages of a stream, in its order."""
    stream = asked["stream"] or js.stream_name_by_subject(subjects[0])
    handle = _handle(js, stream, subjects, asked)
    pending = handle.info().num_pending
    waits = asked["wait"] / 1e9 if asked["wait"] else None
    while pending or not asked["at_end"]:
        batch = min(max(pending, 1), _FETCH_MAX, *([asked["count"]] if asked["count"] else []))
        found = handle.fetch(batch, timeout=waits or 30.0)
        if not found and waits is not None:
            return
        for message in found:
            pending = message.metadata.pending
            yield message


class _Direct(NamedTuple):
    """A message from a direct get, as it is printed."""

    subject: str
    data: bytes
    headers: Headers
    reply: str = ""

    @property
    def raw_headers(self) -> bytes:
        """Whether there are headers."""
        return b"headers" if self.headers else b""


def _direct(js: JetStream, subjects: tuple[str, ...], asked: dict[str, Any]) -> Iterator[_Direct]:
    """The messages of a stream by direct gets; then it is asked again each second."""
    stream = asked["stream"] or js.stream_name_by_subject(subjects[0])
    if len(subjects) > 1:
        raise click.UsageError("--direct reads one subject")
    subject = subjects[0] if subjects else None
    seq: int | None = asked["start_sequence"]
    begin_ns = None if asked["since"] is None else time.time_ns() - asked["since"]
    if asked["deliver"] == "last_per_subject":
        last = js.stream_info(stream).state.last_seq
        for found in js.get_last_messages_for(stream, subject or ">"):
            yield _Direct(found.subject, found.data, found.headers)
        seq = last + 1
    elif asked["deliver"] == "new":
        seq = js.stream_info(stream).state.last_seq + 1
    quiet_since = time.monotonic()
    while True:
        start: dict[str, Any] = {"seq": seq} if begin_ns is None else {"start_time": begin_ns}
        for stored in js.get_batch(stream, subject=subject, **start):
            seq, begin_ns, quiet_since = stored.seq + 1, None, time.monotonic()
            yield _Direct(stored.subject, stored.data, stored.headers)
        if asked["at_end"]:
            return
        if asked["wait"] and time.monotonic() - quiet_since > asked["wait"] / 1e9:
            return
        time.sleep(_AGAIN_S)


def _draw(session: Session, subjects: tuple[str, ...]) -> None:
    """Draw how many messages and bytes arrive."""
    from pelton.cli.streams.graphs import Sample, follow

    counts: Counter[str] = Counter()
    with session.connect(lasting=True) as client:
        listening = [client.subscribe(subject) for subject in subjects]
        hear_out(client)

        def sample() -> dict[str, Sample]:
            client.flush()  # what the server has sent is here then
            for each in listening:
                for message in arrived(each):
                    counts["messages"] += 1
                    counts["bytes"] += len(message.data)
            return {
                "messages": Sample(counts["messages"]),
                "bytes": Sample(counts["bytes"], size),
            }

        follow(session, sample, _INTERVAL_NS, 0)


def _filters(subjects: tuple[str, ...], asked: dict[str, Any]) -> tuple[str, ...]:
    """The subjects to read; the server refuses the last of each subject without a filter."""
    return subjects or ((">",) if asked["deliver"] == "last_per_subject" else ())


def _handle(js: JetStream, stream: str, subjects: tuple[str, ...], asked: dict[str, Any]) -> Any:
    """The durable consumer, which is made if it does not exist, or an ordered consumer."""
    from pelton.client.base.durations import Nanoseconds
    from pelton.client.base.models import ConsumerConfig
    from pelton.errors import ConsumerNotFoundError

    starts = [name for name in ("start_sequence", "deliver", "since") if asked[name] is not None]
    if len(starts) > 1:
        raise click.UsageError("give one place to begin at")
    begin_ns = None if asked["since"] is None else time.time_ns() - asked["since"]
    if asked["durable"] is None:
        return js.ordered_consumer(
            stream,
            filter_subjects=_filters(subjects, asked),
            deliver_policy=asked["deliver"],
            start_seq=asked["start_sequence"] or 1,
            start_time=begin_ns,
            headers_only=asked["headers_only"],
        )
    try:
        return js.consumer(stream, asked["durable"])
    except ConsumerNotFoundError:
        from pelton.cli.consumers.fields import filters_of

        config = ConsumerConfig(
            durable_name=asked["durable"],
            deliver_policy=asked["deliver"] or "all",
            inactive_threshold=Nanoseconds(0),
            **filters_of(_filters(subjects, asked)),
        )
        if asked["start_sequence"]:
            config.deliver_policy = "by_start_sequence"
            config.opt_start_seq = asked["start_sequence"]
        if begin_ns is not None:
            config.deliver_policy, config.opt_start_time = "by_start_time", begin_ns
        js.create_consumer(stream, config)
        return js.consumer(stream, asked["durable"])
