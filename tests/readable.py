"""Waiting for sockets by poll: `select.select` refuses descriptors above 1023, which a long run may have."""

from __future__ import annotations

import select
from collections.abc import Sequence
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from _typeshed import HasFileno

T = TypeVar("T", bound="HasFileno")


def readable(sockets: Sequence[T], seconds: float) -> list[T]:
    """Those of the sockets that can be read, as soon as there is one, at the latest after so many seconds."""
    poll = select.poll()
    for each in sockets:
        poll.register(each, select.POLLIN)
    found = {number for number, _ in poll.poll(max(seconds, 0) * 1000)}
    return [each for each in sockets if each.fileno() in found]
