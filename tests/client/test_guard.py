"""The guard of a blocking client when Ctrl-C, or another signal handler, raises at any moment."""

import signal
from types import FrameType

from pelton.client.sync.locks import Guard


class Interrupted(Exception):
    """Raised by the signal handler."""


def test_an_interrupt_at_any_moment_leaves_the_guard_taken() -> None:
    guard, interrupts = Guard(), 0
    armed = False

    def interrupt(_: int, frame: FrameType | None) -> None:
        nonlocal armed
        if armed:
            armed = False
            raise Interrupted

    former = signal.signal(signal.SIGVTALRM, interrupt)
    signal.setitimer(signal.ITIMER_VIRTUAL, 0.0001, 0.0001)
    try:
        guard.take()
        while interrupts < 100:
            try:
                armed = True
                while True:
                    guard.without(bool)
            except Interrupted:
                interrupts += 1
                guard.give()  # RuntimeError when it is not taken
                guard.take()
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        signal.signal(signal.SIGVTALRM, former)
