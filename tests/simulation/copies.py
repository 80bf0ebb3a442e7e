"""The check of mirrors and sources at the end: each has every message that its origin still has.

Left out are copies that may rightly lack some: a limit or a removal applies to the copy, the origin
is another stream than at first, or a power cut may have taken back what the origin had told. A
power cut may also cost messages of a copy that no sync had covered yet, while later ones stay; the
server reports them as lost.

A copy lacks a message, too, that the origin had removed when its turn came, and that a power cut
brought back: the removal was not synced. `note_absent` records what each server had removed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pelton.core.log import queries

if TYPE_CHECKING:
    from .model import Stream
    from .world import World

# what removes messages of a copy, or keeps it from taking some
LIMITS = (
    *("max_msgs", "max_bytes", "max_age", "max_msgs_per_subject"),
    *("allow_msg_ttl", "allow_rollup_hdrs", "sealed"),
)


def messages(log: Any) -> dict[int, Any]:
    """The messages of a log by their sequences."""
    found: dict[int, Any] = {}
    message = queries.next_of(log, ">", 1)
    while message is not None:
        found[message.seq] = message
        message = queries.next_of(log, ">", message.seq + 1)
    return found


def complete(stream: Stream) -> bool:
    """Whether nothing removes messages from a stream but clients that its model has seen."""
    return not (
        any(stream.ever(name) for name in LIMITS)
        or stream.by_interest
        or stream.removals
        or stream.flips
    )


def note_absent(world: World, streams: dict[str, Stream]) -> None:
    """Record which sequences have no message at the end of a server's life, which has begun with
    `forget_absent`: what it removed stays removed as long as it lives.
    """
    for name, stream in streams.items():
        entry = world.account.streams.get(name)
        if entry is not None:
            log = entry.core.log
            stream.absent.update(range(1, log.first_seq))
            for first, count in queries.deleted(log):  # reads nothing from the disk
                stream.absent.update(range(first, first + count))


def forget_absent(world: World, streams: dict[str, Stream]) -> None:
    """Forget the sequences that a power cut has taken back: they are given again."""
    for name, stream in streams.items():
        entry = world.account.streams.get(name)
        last = entry.core.log.last_seq if entry is not None else 0
        stream.absent = {seq for seq in stream.absent if seq <= last}


def check_mirror(world: World, stream: Stream, origin: Stream) -> None:
    """Check that a mirror ends where its origin ends, and has its messages under its sequences."""
    copy = world.account.streams[stream.name].core.log
    log = world.account.streams[origin.name].core.log
    there, named = messages(copy), messages(log)
    if copy.last_seq < max(named, default=0):
        world.fail(f"mirror {stream.name} ends at {copy.last_seq}, {origin.name} at {max(named)}")
    lost = {seq for first, count, _ in copy.lost for seq in range(first, first + count)}
    for seq, message in named.items():
        if seq not in there:
            if complete(stream) and seq not in lost and seq not in origin.absent:
                world.fail(
                    f"mirror {stream.name} lacks {seq} of {origin.name}: {message.payload!r}"
                )
        elif there[seq].payload != message.payload or there[seq].subject != message.subject:
            world.fail(f"mirror {stream.name}: {seq} is {there[seq]}, in {origin.name} {message}")
    world.counts["mirrors compared"] += 1


def check_source(world: World, stream: Stream, origin: Stream) -> None:
    """Check that a stream has each message of a stream that it copies, by this way or another."""
    if not complete(stream):
        return
    copy = world.account.streams[stream.name].core.log
    if copy.lost:
        return
    there = {each.payload for each in messages(copy).values()}
    for seq, message in messages(world.account.streams[origin.name].core.log).items():
        if message.payload not in there and seq not in origin.absent:
            world.fail(f"{stream.name} lacks {seq} of {origin.name}: {message.payload!r}")
    world.counts["sources compared"] += 1


def check(world: World, streams: dict[str, Stream]) -> None:
    """Check all mirrors and sources whose origins are what they were when these were made."""
    for stream in streams.values():
        if stream.there != "yes":
            continue
        # of an update that was not answered only the server knows whether it came into effect
        config = world.account.streams[stream.name].config
        mirror = config.mirror
        for each in [mirror] if mirror else config.sources:
            origin = streams.get(each.name)
            if origin is None or origin.there != "yes" or origin.flips or stream.flips:
                continue
            if stream.origins.get(origin.name) is not origin or origin.config.get(
                "allow_msg_counter"
            ):
                continue
            if world.relaxed_once or origin.config.get("persist_mode") == "async":
                continue
            if mirror:
                check_mirror(world, stream, origin)
            elif stream.config.get("persist_mode") != "async":
                check_source(world, stream, origin)
