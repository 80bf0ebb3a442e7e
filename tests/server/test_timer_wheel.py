"""The wheel against a plain list of who is due when."""

from hypothesis import example, given, settings
from hypothesis import strategies as st

from pelton.core.base.clock import Clock
from pelton.core.broker.reactor import Connection, Reactor
from pelton.core.broker.router import Router
from pelton.core.broker.session import Sessions
from pelton.server.clients.timer_wheel import NEVER_NS, STEP_NS, TimerWheel

START_NS = 1_700_000_000_000_000_000
HUB = Reactor(Clock(START_NS))
SESSIONS = Sessions(HUB, lambda connection, text: None, Router(HUB))
CONNECTIONS = [SESSIONS.accept() for _ in range(6)]


class Member:
    """What is kept of a client."""

    def __init__(self) -> None:
        self.due_ns = 0
        self.slot = 0


TIMES = st.integers(0, 12).map(lambda quarters: quarters * STEP_NS // 3)
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("put"), st.integers(0, 5), TIMES | st.just(NEVER_NS)),
        st.tuples(st.just("later"), st.integers(0, 5), TIMES),
        st.tuples(st.just("drop"), st.integers(0, 5), st.just(0)),
        st.tuples(st.just("turn"), st.just(0), TIMES),
    ),
    max_size=40,
)


# one deadline moves back, past that of another client whose slot comes later
MOVED_PAST_ANOTHER = [
    ("put", 1, 4 * STEP_NS),
    ("later", 1, 4 * STEP_NS // 3),
    ("put", 0, 5 * STEP_NS),
    ("turn", 0, 0),
]


@settings(deadline=None)
@given(STEPS)
@example(MOVED_PAST_ANOTHER)
def test_it_finds_who_is_due_whatever_was_put_moved_and_dropped(
    steps: list[tuple[str, int, int]],
) -> None:
    wheel, now_ns = TimerWheel(), START_NS
    members = [Member() for _ in CONNECTIONS]
    due: dict[int, int] = {}
    for action, who, by_ns in steps:
        connection, member = CONNECTIONS[who], members[who]
        if action == "put":
            due_ns = by_ns if by_ns == NEVER_NS else now_ns + by_ns
            wheel.put(connection, member, due_ns)
            due[who] = due_ns
        elif action == "later" and due.get(who, NEVER_NS) < NEVER_NS:
            member.due_ns = due[who] = due[who] + by_ns
        elif action == "drop":
            wheel.drop(connection, member)
            due.pop(who, None)
        elif action == "turn":
            now_ns += by_ns
            found = {CONNECTIONS.index(connection) for connection, _ in wheel.take(now_ns)}
            assert found == {who for who, due_ns in due.items() if due_ns <= now_ns}
            for who in found:
                wheel.put(CONNECTIONS[who], members[who], now_ns + 2 * STEP_NS)
                due[who] = now_ns + 2 * STEP_NS
            waiting = [due_ns for due_ns in due.values() if due_ns < NEVER_NS]
            soonest = min(waiting, default=NEVER_NS)
            assert wheel.next_ns() == soonest or not waiting


def test_nobody_is_kept_when_gone() -> None:
    wheel, member = TimerWheel(), Member()
    connection: Connection = CONNECTIONS[0]
    wheel.put(connection, member, START_NS)
    assert wheel.next_ns() == START_NS
    wheel.drop(connection, member)
    assert (wheel.next_ns(), wheel.take(START_NS * 2)) == (NEVER_NS, [])
