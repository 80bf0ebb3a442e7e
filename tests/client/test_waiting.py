"""How tasks wait in the asyncio client: until their deadline, and until the end of the turn that wakes them."""

import asyncio
import contextvars
import math
from collections.abc import Coroutine
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pelton.client.aio.waiting import Waiting, Waits, until
from pelton.client.base.mailbox import Mailbox


class Loop:
    """The clock and the timers of a loop."""

    def __init__(self) -> None:
        self.now = 0.0
        self.timers: list[Any] = []

    def time(self) -> float:
        return self.now

    def get_debug(self) -> bool:
        return False

    def call_later(self, delay: float, call: Any) -> Any:
        loop, due = self, self.now + delay

        class Timer:
            def cancel(self) -> None:
                loop.timers.remove(entry)

        entry = (due, call)
        self.timers.append(entry)
        return Timer()

    def advance(self, now: float) -> None:
        while self.timers and min(due for due, _ in self.timers) <= now:
            entry = min(self.timers, key=lambda timer: timer[0])
            self.timers.remove(entry)
            self.now = max(self.now, entry[0])
            entry[1]()
        self.now = now


@given(
    st.lists(
        st.one_of(
            st.tuples(st.just("wait"), st.integers(0, 50)),
            st.tuples(st.just("end"), st.integers(0, 30)),
            st.tuples(st.just("time"), st.integers(1, 20)),
        ),
        max_size=60,
    )
)
def test_waits_are_over_at_their_deadline_and_not_before(moves: list[tuple[str, int]]) -> None:
    """Beside a list of (deadline, wait); one timer stands while anybody waits, and none is left."""
    loop: Any = Loop()
    all_waits = Waits(loop, loop.time)
    waits: list[Waiting] = []
    for verb, number in moves:
        if verb == "wait":
            waits.append(Waiting(all_waits, loop.now + number))
            all_waits.add(waits[-1])
        elif verb == "end" and waits:
            all_waits.remove(waits.pop(number % len(waits)))
        else:
            loop.advance(loop.now + number + 0.5)
        assert len(loop.timers) <= 1
        for each in waits:
            if verb == "time":
                assert each.late is (each.deadline <= loop.now)
            assert each.done() is each.late
    loop.advance(loop.now + 1000)
    assert all(each.late for each in waits)
    assert not loop.timers


class Output:
    bytes_waiting = 0


class House:
    """A client with waits, whose bytes the test makes up."""

    def __init__(self) -> None:
        self._waits = Waits(asyncio.get_running_loop(), asyncio.get_running_loop().time)
        self._connection = Output()

    def receive(self, *boxes: Mailbox) -> None:
        """Bytes arrive, and stir these mailboxes."""
        self._waits.hold()
        for box in boxes:
            box._stir()
        self._waits.resume()

    async def wait(self, box: Mailbox, done: Any, seconds: float = math.inf) -> bool:
        client: Any = self
        return await until(client, box, done, seconds)


class Letter(Mailbox):
    """A mailbox whose task waits for it to be there."""

    there = False

    def is_there(self) -> bool:
        return self.there


async def outside(call: Any, *arguments: Any) -> None:
    """Call a function from the loop, as a transport does, and let the tasks go on that it woke."""
    done = asyncio.get_running_loop().create_future()

    def turn() -> None:
        try:
            call(*arguments)
        finally:
            done.set_result(None)

    asyncio.get_running_loop().call_soon(turn)
    await done


def in_loop(test: Coroutine[Any, Any, None]) -> None:
    async def bounded() -> None:
        async with asyncio.timeout(60):
            await test

    asyncio.run(bounded())


@given(
    st.integers(1, 6),
    st.lists(
        st.tuples(
            st.sampled_from(["stir", "arrive", "received", "in a task", "cancel", "yield"]),
            st.integers(0, 5),
        ),
        max_size=40,
    ),
)
def test_each_task_goes_on_once(count: int, moves: list[tuple[str, int]]) -> None:
    """Beside two sets: the tasks whose letter is there and was stirred, and those that were cancelled."""

    async def test() -> None:
        house = House()
        letters = [Letter() for _ in range(count)]
        seen: list[int] = []

        async def work(number: int) -> None:
            assert await house.wait(letters[number], letters[number].is_there)
            seen.append(number)

        tasks = [asyncio.create_task(work(number)) for number in range(count)]
        await asyncio.sleep(0)
        told: set[int] = set()
        cancelled: set[int] = set()
        for verb, number in moves:
            number %= count
            letter = letters[number]
            if verb == "arrive":
                letter.there = True
                continue
            if verb == "cancel":
                tasks[number].cancel()
                if number not in told:
                    cancelled.add(number)
            elif verb == "stir":
                letter._stir()
            elif verb == "in a task":
                house.receive(letter, letters[0])
            elif verb == "received":
                await outside(house.receive, letter, letters[0])
            if verb in ("stir", "in a task", "received"):
                ready = {number} if verb == "stir" else {number, 0}
                told |= {each for each in ready if letters[each].there} - cancelled
            await asyncio.sleep(0)
            await asyncio.sleep(0)
            assert sorted(seen) == sorted(told)
            assert {n for n, task in enumerate(tasks) if task.cancelled()} == cancelled
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        assert not house._waits._waiting
        assert not any(letter._waiting for letter in letters)

    in_loop(test())


def test_received_bytes_let_tasks_go_on_in_the_same_turn() -> None:
    async def test() -> None:
        house, letters = House(), [Letter() for _ in range(3)]
        order: list[object] = []

        async def work(number: int) -> None:
            await house.wait(letters[number], letters[number].is_there)
            order.append(number)
            await asyncio.sleep(0)

        def turn() -> None:
            asyncio.get_running_loop().call_soon(order.append, "next turn")
            for letter in letters:
                letter.there = True
            house.receive(letters[2], letters[0], letters[1])

        tasks = [asyncio.create_task(work(number)) for number in range(3)]
        await asyncio.sleep(0)
        await outside(turn)
        await asyncio.gather(*tasks)
        assert order == [2, 0, 1, "next turn"]

    in_loop(test())


def test_a_task_that_another_one_cancels_in_the_same_turn_is_cancelled() -> None:
    async def test() -> None:
        house, first, second = House(), Letter(), Letter()

        async def canceller() -> None:
            await house.wait(first, first.is_there)
            assert other.cancel()

        task = asyncio.create_task(canceller())
        other = asyncio.create_task(house.wait(second, second.is_there))
        await asyncio.sleep(0)
        first.there = second.there = True
        await outside(house.receive, first, second)
        await task
        with pytest.raises(asyncio.CancelledError):
            await other

    in_loop(test())


def test_a_signal_may_cancel_a_task_at_the_moment_in_which_it_is_woken() -> None:
    class Interrupted(Waiting):
        def set_result(self, result: None, /) -> None:
            self.cancel()  # as the handler of SIGINT does, between two steps of the interpreter
            super().set_result(result)

    async def test() -> None:
        house = House()
        for later in (False, True):
            waiting = Interrupted(house._waits, math.inf)
            called: list[object] = []
            waiting.add_done_callback(called.append, context=contextvars.copy_context())
            if not later:
                house._waits.hold()
            waiting.wake()
            if not later:
                house._waits.resume()
            await asyncio.sleep(0)
            assert called == [waiting]
            assert waiting.cancelled()

    in_loop(test())


def test_an_answer_in_time_is_not_lost_to_a_timeout_in_the_same_turn() -> None:
    async def test() -> None:
        house, letter = House(), Letter()

        async def work() -> bool:
            async with asyncio.timeout(None) as limit:
                limits.append(limit)
                return await house.wait(letter, letter.is_there)

        def turn() -> None:
            letter.there = True
            house.receive(letter)
            limits[0].reschedule(0)

        limits: list[asyncio.Timeout] = []
        task = asyncio.create_task(work())
        await asyncio.sleep(0)
        loop = asyncio.get_running_loop()
        loop.call_soon(turn)
        assert await task

    in_loop(test())


def test_a_task_keeps_its_context() -> None:
    async def test() -> None:
        house, letter, name = House(), Letter(), contextvars.ContextVar[str]("name")

        async def work() -> str:
            name.set("mine")
            await house.wait(letter, letter.is_there)
            return name.get()

        def turn() -> None:
            name.set("the transport's")
            letter.there = True
            house.receive(letter)
            assert name.get() == "the transport's"

        task = asyncio.create_task(work())
        await asyncio.sleep(0)
        await outside(turn)
        assert await task == "mine"

    in_loop(test())


@pytest.mark.parametrize("kind", [SystemExit, KeyboardInterrupt])
def test_a_task_that_ends_the_program_does_not_hold_up_the_others(
    kind: type[BaseException],
) -> None:
    loop = asyncio.new_event_loop()
    seen: list[str] = []

    async def begin() -> tuple[House, list[Letter], list[asyncio.Task[None]]]:
        house, letters = House(), [Letter(), Letter()]

        async def ends() -> None:
            await house.wait(letters[0], letters[0].is_there)
            raise kind

        async def goes_on() -> None:
            await house.wait(letters[1], letters[1].is_there)
            seen.append("went on")

        tasks = [asyncio.create_task(ends()), asyncio.create_task(goes_on())]
        await asyncio.sleep(0)
        return house, letters, tasks

    house, letters, tasks = loop.run_until_complete(begin())
    for letter in letters:
        letter.there = True
    loop.call_soon(house.receive, *letters)
    with pytest.raises(kind):
        loop.run_until_complete(tasks[1])
    loop.run_until_complete(tasks[1])
    with pytest.raises(kind):
        tasks[0].result()
    loop.close()
    assert seen == ["went on"]
