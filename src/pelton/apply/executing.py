"""Makes a plan's changes with the calls of JetStream.

Changes are made in the plan's order. Neighbours that do not depend on each other (new consumers, consumers to delete,
entries of buckets) may be sent side by side: a server writes what several requests ask for with one wait for its disk.
"""

from __future__ import annotations

from contextlib import suppress
from itertools import groupby
from typing import TYPE_CHECKING

from pelton.api import ConsumerConfig, StreamConfig, decode_response, encode
from pelton.api.errors_generated import StreamCreateError
from pelton.apply.together import one_by_one
from pelton.client.base.models import ConsumerConfig as ClientConsumerConfig
from pelton.client.base.models import StreamConfig as ClientStreamConfig
from pelton.errors import (
    ConnectionClosedError,
    ConsumerNotFoundError,
    PeltonError,
    PeltonTimeoutError,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from pelton.apply.planning import Change, Plan
    from pelton.apply.together import Together
    from pelton.client.sync.jetstream import JetStream


_TRIES = 100
_NOT_BEGUN = PeltonError("not begun")


class ApplyError(PeltonError):
    """A change was refused by the server.

    The changes before it are made, and of those after it only some that were on their way.
    """


class DataLossError(PeltonError):
    """The plan loses messages or positions, which is not allowed."""


def check(plan: Plan, *, allow_data_loss: bool) -> None:
    """Raise PeltonError unless the whole plan may be carried out."""
    if plan.refused:
        texts = [f"cannot change {each.title}: {'; '.join(each.reasons)}" for each in plan.refused]
        raise ApplyError("; ".join(texts))
    if plan.losses and not allow_data_loss:
        lost = "; ".join(f"{each.action} {each.title} loses {each.loss}" for each in plan.losses)
        raise DataLossError(f"{lost}; --allow-data-loss does it")


def execute(
    jetstream: JetStream,
    plan: Plan,
    *,
    allow_data_loss: bool = False,
    done: Callable[[Change], None] = lambda _: None,
    together: Together = one_by_one,
) -> int:
    """Make the changes; ``done`` is called with each change, in the plan's order. Returns their
    number.

    ``together`` calls a function for each of some changes, one by one or several at a time.

    Raises DataLossError and ApplyError before the first change if the plan must not be carried out, and
    ApplyError when the server refuses one.
    """
    check(plan, allow_data_loss=allow_data_loss)
    made = 0
    for group in _groups(plan.pending):
        first: tuple[Change, PeltonError] | None = None
        make = _maker(jetstream, allow_data_loss, stop_at_error=True)
        for change, error in zip(group, together(make, group), strict=True):
            if error is None:
                made += 1
                done(change)
            elif first is None and error is not _NOT_BEGUN:
                first = change, error
        if first is not None:
            change, error = first
            rest = f"{made} of {len(plan.pending)} changes were made"
            text = f"cannot {change.action} {change.title}: {error}; {rest}"
            raise ApplyError(text) from error
    return made


def execute_each(
    jetstream: JetStream,
    plan: Plan,
    *,
    allow_data_loss: bool = False,
    done: Callable[[Change], None],
    held: Callable[[Change, str], None],
    failed: Callable[[Change, str], None],
    together: Together = one_by_one,
) -> None:
    """Make every change that may be made, and go on after one that cannot.

    ``held`` is called with changes that are not allowed or would lose data, ``failed`` with changes
    that the server refuses, both with the reason. Consumers and entries of a stream that could not
    be changed are left alone. Raises ConnectionClosedError and PeltonTimeoutError.
    """
    left = set()
    for change in plan.refused:
        held(change, "; ".join(change.reasons))
        if not change.consumer and not change.entry:
            left.add(change.stream)
    for group in _groups(plan.pending):
        free = []
        for change in group:
            inner = bool(change.consumer or change.entry)
            if inner and change.stream in left:
                continue
            if change.loss and not allow_data_loss:
                held(change, f"it would lose {change.loss}; --allow-data-loss does it")
                if not inner:
                    left.add(change.stream)
            else:
                free.append(change)
        outcomes = together(_maker(jetstream, allow_data_loss), free)
        for change, error in zip(free, outcomes, strict=True):
            if error is None:
                done(change)
                continue
            if isinstance(error, ConnectionClosedError | PeltonTimeoutError):
                raise error
            failed(change, str(error))
            if not change.consumer and not change.entry:
                left.add(change.stream)


def _groups(changes: Iterable[Change]) -> Iterator[list[Change]]:
    """The changes in their order, with neighbours together that may be made at the same time."""
    for kind, group in groupby(changes, _kind):
        if kind:
            yield list(group)
        else:
            yield from ([change] for change in group)


def _kind(change: Change) -> str:
    """The group of a change: neighbours of one group are made at the same time; "": a change on its
    own.

    Streams may take over each other's subjects. So may the consumers of a work queue, when one is changed or replaced.
    """
    if change.entry and change.action in ("create", "update"):
        return "entry"
    return change.action if change.consumer and change.action in ("create", "delete") else ""


def _maker(
    jetstream: JetStream, allow_data_loss: bool, *, stop_at_error: bool = False
) -> Callable[[Change], PeltonError | None]:
    """A function that makes a change and returns the error that it met.

    ``stop_at_error``: after an error it begins no other change, and returns _NOT_BEGUN for it.
    """
    errors: list[PeltonError] = []

    def make(change: Change) -> PeltonError | None:
        if errors and stop_at_error:
            return _NOT_BEGUN
        try:
            _make(jetstream, change, allow_data_loss)
        except PeltonError as error:
            errors.append(error)
            return error
        return None

    return make


def _make(jetstream: JetStream, change: Change, allow_data_loss: bool) -> None:
    if change.entry:
        _write_entry(jetstream, change)
        return
    if change.consumer:
        _make_consumer(jetstream, change)
        return
    if change.action in ("delete", "replace"):
        if not allow_data_loss:
            _still_empty(jetstream, change.stream)
        jetstream.delete_stream(change.stream)
    if change.action == "delete":
        return
    assert isinstance(change.wanted, StreamConfig)
    config = decode_response(ClientStreamConfig, encode(change.wanted))
    if change.action == "update":
        jetstream.update_stream(config)
    else:
        _create_stream(jetstream, config)


def _still_empty(jetstream: JetStream, stream: str) -> None:
    """Raise DataLossError if messages have come into a stream since the plan was made."""
    count = jetstream.stream_info(stream).state.messages
    if count:
        text = f"{count:,} message{'s' * (count > 1)} came since the plan was made"
        raise DataLossError(f"{text}; --allow-data-loss loses them")


def _write_entry(jetstream: JetStream, change: Change) -> None:
    """Write a value, unless the key has changed since the plan was made."""
    values = jetstream.key_value(change.stream.removeprefix("KV_"))
    if change.action == "create":
        values.create(change.entry, change.value)
    else:
        values.update(change.entry, change.value, change.revision)


def _create_stream(jetstream: JetStream, config: ClientStreamConfig) -> None:
    """Create a stream, if need be some times: after a deletion a nats-server may still remove folders."""
    for _ in range(_TRIES):
        with suppress(StreamCreateError):
            jetstream.create_stream(config)
            return
        jetstream.account_info()  # the server works meanwhile
    jetstream.create_stream(config)


def _make_consumer(jetstream: JetStream, change: Change) -> None:
    if change.action in ("delete", "replace"):
        with suppress(ConsumerNotFoundError):  # it went with its stream
            jetstream.delete_consumer(change.stream, change.consumer)
    if change.action == "delete":
        return
    assert isinstance(change.wanted, ConsumerConfig)
    config = decode_response(ClientConsumerConfig, encode(change.wanted))
    if change.action == "update":
        jetstream.update_consumer(change.stream, config)
    else:
        jetstream.create_consumer(change.stream, config, action="create")
