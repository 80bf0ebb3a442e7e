"""The counts of calls that tests compare."""

from __future__ import annotations

from tests.counting import calls_of


class Left:
    """Garbage of another test, with something to do when it is collected."""

    def __init__(self) -> None:
        self.itself = self

    def __del__(self) -> None:
        pass


def test_garbage_of_others_is_not_counted() -> None:
    for _ in range(5000):
        Left()
    assert calls_of(lambda: [[] for _ in range(200_000)]) < 100
