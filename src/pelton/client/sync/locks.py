"""What threads need to share a blocking client: its lock, the sleep of a thread, a bell, and a wait for sockets.

A thread holds the guard while it works with the client, and releases it to sleep, to wait for bytes, to
connect, or to read from a file. So a call never waits long for the guard. Sockets are waited for with ``poll``
of the system, or ``select`` where there is no such call, as on Windows.
"""

from __future__ import annotations

import contextlib
import functools
import inspect
import os
import select
import socket
import sys
import threading
from itertools import starmap
from typing import TYPE_CHECKING, Any, TypeVar, cast

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from _typeshed import HasFileno

    F = TypeVar("F", bound=Callable[..., Any])

T = TypeVar("T")

SILENT, ATTENDED, WAITING = range(3)
_ONCE = ((),)  # the arguments of one call
_ONE = (1).to_bytes(8, sys.byteorder)  # what an eventfd takes


class Guard:
    """The lock of a client. A thread that has it may take it again.

    Methods write ``guard.take()``, and ``guard.give()`` in a finally: these are C calls, and take a
    tenth of the time of ``with``.
    """

    __slots__ = ("_forgo", "_lock", "give", "regain", "take")

    def __init__(self) -> None:
        """No thread holds it."""
        lock: Any = threading.RLock()
        self._lock = lock
        self.take: Callable[[], bool] = lock.acquire
        self.give: Callable[[], None] = lock.release
        # What threading.Condition calls to give away a lock that was taken several times.
        self._forgo: Callable[[], object] = lock._release_save
        self.regain: Callable[[object], None] = lock._acquire_restore

    def __enter__(self) -> None:
        """Take the guard."""
        self.take()

    def __exit__(self, *_: object) -> None:
        """Release the guard."""
        self.give()

    def reset_in_child(self) -> None:
        """This process was forked: a thread that held the guard is not here."""
        # The forking thread itself goes on in the child, and gives the guard back.
        if not self._lock._is_owned():
            self._lock._at_fork_reinit()

    def give_away(self, given: list[object]) -> None:
        """Give the guard away, and add to ``given`` what ``regain`` needs; call it within the try.

        A signal handler may raise at any moment, as that of Ctrl-C does. Nothing comes between the two: they
        are one C call.
        """
        given.extend(starmap(self._forgo, _ONCE))

    def without(self, function: Callable[..., T], *arguments: object) -> T:
        """Call a function that waits, while other threads have the guard."""
        given: list[object] = []
        try:
            self.give_away(given)
            return function(*arguments)
        finally:
            if given:
                self.regain(given[0])


class Sleeper:
    """A thread that sleeps until it is woken; for one sleep."""

    __slots__ = ("_lock",)

    def __init__(self) -> None:
        """Awake when ``wake`` comes before ``sleep``."""
        # Taken means asleep: for one sleep, a plain lock is enough.
        self._lock = threading.Lock()
        self._lock.acquire()

    def wake(self) -> None:
        """Wake the thread; any number of times, by any thread."""
        with contextlib.suppress(RuntimeError):  # it is awake already
            self._lock.release()

    def sleep(self, guard: Guard, seconds: float) -> bool:
        """Sleep without the guard; False when the time is over."""
        if seconds <= 0:
            return self._lock.acquire(False)
        limit = min(seconds, threading.TIMEOUT_MAX)
        return guard.without(self._lock.acquire, True, limit)


class Bell:
    """Ends a thread's wait for bytes: a descriptor that is readable from ``ring`` to ``hear``.

    The thread calls ``attend``, looks whether it has to wait at all, and waits if ``begin_wait`` allows it::

        SILENT ── attend ──► ATTENDED ── begin_wait ──► WAITING ── end_wait ──► SILENT
                                 └── wake ──► SILENT        └── wake, which rings ──► SILENT
    """

    __slots__ = ("_ear", "_lock", "_mouth", "_pair", "_state")

    def __init__(self) -> None:
        """Silent."""
        self._state = SILENT
        self._lock = threading.RLock()  # garbage collection may ring at any moment
        self._pair: tuple[socket.socket, ...] = ()
        if hasattr(os, "eventfd"):  # on Linux
            self._ear = self._mouth = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        else:
            self._pair = socket.socketpair()  # Windows waits for sockets only
            for end in self._pair:
                end.setblocking(False)
            self._ear, self._mouth = (end.fileno() for end in self._pair)

    def __del__(self) -> None:
        """Give the descriptor back."""
        self.close()

    def fileno(self) -> int:
        """The descriptor."""
        return self._ear

    def attend(self) -> None:
        """From now on ``wake`` is noticed."""
        # Without the bell's lock: states change only with the guard of the client.
        self._state = ATTENDED

    def begin_wait(self) -> bool:
        """Whether to wait: not when ``wake`` was called since ``attend``."""
        if self._state != ATTENDED:
            return False
        self._state = WAITING
        return True

    def end_wait(self) -> None:
        """The wait is over."""
        if self._state != WAITING:
            self.hear()
        self._state = SILENT

    @property
    def waits(self) -> bool:
        """Whether a thread waits for bytes and for the bell."""
        return self._state == WAITING

    def wake(self) -> None:
        """Let the thread look again. As ``wake`` of a thread that sleeps."""
        if self._state == WAITING:
            self.ring()
        self._state = SILENT

    def ring(self) -> None:
        """End the wait that is under way, or the next one; nothing once it is closed."""
        with self._lock, contextlib.suppress(BlockingIOError):  # it rings already
            # After ``close`` the number may belong to another file.
            if self._mouth >= 0:
                self._pair[1].send(_ONE) if self._pair else os.write(self._mouth, _ONE)

    def hear(self) -> None:
        """Silence the bell."""
        with self._lock, contextlib.suppress(BlockingIOError):
            if self._ear >= 0:
                self._pair[0].recv(4096) if self._pair else os.read(self._ear, 4096)

    def close(self) -> None:
        """Give the descriptor back; a second call does nothing."""
        with self._lock:
            # A set, because an eventfd is both ends.
            ends = {self._ear, self._mouth} - {-1}
            self._ear = self._mouth = -1
            for end in self._pair:
                end.close()
            if not self._pair:
                for each in ends:
                    os.close(each)


# -- methods that hold the lock -------------------------------------------------------------------


def locked(method: F) -> F:
    """A method of an object with a ``client``, whose lock it holds while it runs.

    Threads share a client; a call gives the lock away while it waits. A generator holds it while it makes
    an item, not while its user has the item.
    """
    if inspect.isgeneratorfunction(method):
        return cast("F", _locked_items(method))

    @functools.wraps(method)
    def holding(self: Any, /, *args: Any, **kwargs: Any) -> Any:
        guard = self.client._guard
        guard.take()
        try:
            return method(self, *args, **kwargs)
        finally:
            guard.give()

    return cast("F", holding)


def unlocked(method: F) -> F:
    """The method itself, which waits and takes the lock only for moments."""
    return method


def _locked_items(method: Callable[..., Any]) -> Callable[..., Iterator[Any]]:
    @functools.wraps(method)
    def holding(self: Any, /, *args: Any, **kwargs: Any) -> Iterator[Any]:
        items = method(self, *args, **kwargs)
        # The generator is made without the guard: nothing of it runs before the first item.
        guard = self.client._guard
        try:
            while True:
                with guard:
                    try:
                        item = next(items)
                    except StopIteration:
                        return
                yield item
        finally:
            with guard:
                items.close()

    return holding


IN, OUT, ERR, HUP = 1, 4, 8, 16  # as everywhere
READABLE = IN | HUP | ERR
WRITABLE = OUT | HUP | ERR


class SelectPoll:
    """``select.poll`` by ``select.select``."""

    def __init__(self) -> None:
        """Without descriptors."""
        self._events: dict[int, int] = {}

    def register(self, waited: HasFileno, events: int) -> None:
        """Wait for these events from now on."""
        self._events[waited.fileno()] = events

    modify = register

    def unregister(self, waited: HasFileno) -> None:
        """Wait for it no more."""
        del self._events[waited.fileno()]

    def poll(self, milliseconds: float) -> list[tuple[int, int]]:
        """The descriptors that are ready, and their events; OSError when one is closed."""
        readers = [number for number, events in self._events.items() if events & IN]
        writers = [number for number, events in self._events.items() if events & OUT]
        # A connection that was refused is in the third list on Windows.
        found = select.select(readers, writers, writers, milliseconds / 1000)
        ready: dict[int, int] = {}
        for numbers, event in zip(found, (IN, OUT, ERR), strict=True):
            for number in numbers:
                ready[number] = ready.get(number, 0) | event
        return list(ready.items())


def new_poll() -> Any:
    """An object with the methods of ``select.poll``."""
    return select.poll() if hasattr(select, "poll") else SelectPoll()
