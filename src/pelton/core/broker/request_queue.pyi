"""Requests of all accounts, carried out step by step and in turns."""

from collections.abc import Callable, Generator

from pelton.core.broker.reactor import Connection, Reactor, Task

Work = Generator[None]
"""The work of a request: it yields between steps of at most about 100 microseconds."""

class RequestQueue(Task):
    """The requests that wait; a request begins at once when none waits and the turn's budget is not used up.

    Accounts take turns, step by step, and so do the connections of an account; requests of one connection are carried
    out in order. A client is not read from while its request waits, so that its operations stay in order and none is
    refused. Requests that come from another server, or from inside this one, hold nobody up: `most` of an account may
    wait, with `most_bytes` bytes.
    """

    most: int
    most_bytes: int

    def __init__(
        self,
        reactor: Reactor,
        failed: Callable[[Exception], object],
        most: int = ...,
        most_bytes: int = ...,
    ) -> None:
        """`failed` gets an exception that the work of a request raises."""
    def submit(self, account: object, source: Connection | None, work: Work, size: int = 0) -> bool:
        """Carry out the work of a request of `size` bytes, for an account, which can be any object. False: too many wait;
        the work will not be done.
        """
    def drop(self, account: object) -> None:
        """Close the work of all requests of an account that wait."""
    def waiting(self, account: object) -> int:
        """How many requests of an account wait or are being carried out."""
