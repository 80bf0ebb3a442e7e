"""Push consumers: interest, groups, heartbeats, flow control, pace; windows and buckets alone."""

from hypothesis import given
from hypothesis import strategies as st

from pelton.core.consumer.consumer import ACK_NONE
from pelton.core.consumer.pacing import FlowWindow, Pacing
from pelton.core.log.recovery import open_log
from pelton.core.protocol.permissions import ConnectionPermissions
from pelton.core.stream.stream import SYNC_INTERVAL, Stream
from tests.core.streams import Site

SECOND = 1_000_000_000
MIB = 1 << 20


def test_delivers_only_while_somebody_listens() -> None:
    site = Site()
    consumer = site.consumer(deliver_subject="to.me")
    site.publish("s.a", b"1")
    assert site.heard() == []
    assert not consumer.push_bound()
    idle = consumer.idle_since_ns()
    assert idle == site.reactor.now_ns
    site.client.send("SUB to.* 7\r\n")
    (message,) = site.heard()
    assert (message.subject, message.sid, message.payload) == ("s.a", 7, b"1")
    assert (consumer.push_bound(), consumer.idle_since_ns()) == (True, 0)
    site.client.send("UNSUB 7\r\n")
    site.clock.advance(SECOND)
    site.publish("s.a", b"2")
    assert site.heard() == []
    assert consumer.idle_since_ns() == idle + SECOND
    site.client.send("SUB to.me 8\r\n")
    assert [m.payload for m in site.heard()] == [b"2"]


def test_a_deliver_group_waits_for_its_members_and_serves_all() -> None:
    site = Site()
    consumer = site.consumer(deliver_subject="to.me", deliver_group="g")
    plain, other = site.server.client(), site.server.client()
    plain.send("SUB to.me 1\r\n")
    other.send("SUB to.me h 1\r\n")
    for _ in range(20):
        site.publish("s.a")
    assert site.heard(plain) == site.heard(other) == []
    assert not consumer.push_bound()
    members = [site.server.client().send("SUB to.me g 1\r\n") for _ in range(3)]
    heard = [len(site.heard(m)) for m in members]
    assert sum(heard) == 20
    assert all(heard)
    assert len(site.heard(plain)) == len(site.heard(other)) == 20
    for member in members:
        member.send("UNSUB 1\r\n")
    site.publish("s.a")
    assert site.heard(plain) == site.heard(other) == []
    assert not consumer.push_bound()


def test_without_a_deliver_group_queue_groups_do_not_count() -> None:
    site = Site()
    consumer = site.consumer(deliver_subject="to.me")
    member = site.server.client().send("SUB to.me g 1\r\n")
    site.publish("s.a")
    assert site.heard(member) == []
    assert not consumer.push_bound()
    plain = site.server.client().send("SUB to.me 1\r\n")
    assert consumer.push_bound()
    site.publish("s.a")
    assert len(site.heard(plain)) == len(site.heard(member)) == 2
    plain.send("UNSUB 1\r\n")
    assert not consumer.push_bound()


def test_redelivers_and_stops_at_max_ack_pending() -> None:
    site = Site()
    consumer = site.consumer(deliver_subject="in.p", max_ack_pending=2, ack_wait_ns=SECOND)
    for _ in range(4):
        site.publish("s.a")
    first = site.heard()
    assert [m.number(1) for m in first] == [1, 2]
    site.ack(first[0])
    assert [m.number(1) for m in site.heard()] == [3]
    site.after(SECOND)
    assert [(m.number(0), m.number(1)) for m in site.heard()] == [(2, 2), (2, 3)]
    assert consumer.state().num_redelivered == 2


def test_idle_heartbeats() -> None:
    site = Site()
    site.consumer(deliver_subject="in.p", idle_heartbeat_ns=SECOND)
    site.reactor.settle()
    site.publish("s.a")
    site.heard()
    site.after(SECOND // 2)
    assert site.heard() == []
    site.after(SECOND // 2)
    (beat,) = site.heard()
    assert (
        beat.headers
        == b"NATS/1.0 100 Idle Heartbeat\r\nNats-Last-Consumer: 1\r\nNats-Last-Stream: 1\r\n\r\n"
    )
    assert (beat.subject, beat.reply, beat.payload) == ("in.p", "", b"")
    for _ in range(3):
        site.after(SECOND)
    assert len(site.heard()) == 3


def test_flow_control_stops_asks_and_goes_on() -> None:
    site = Site()
    consumer = site.consumer(
        deliver_subject="in.p", ack_policy=ACK_NONE, flow_control=True, idle_heartbeat_ns=SECOND
    )
    for _ in range(100):
        site.publish("s.a", b"x" * 100_000)
    heard = site.heard()
    questions = [m for m in heard if m.status]
    assert [m.status for m in questions] == ["100 FlowControl Request"]
    assert questions[0].headers == b"NATS/1.0 100 FlowControl Request\r\n\r\n"
    assert questions[0].reply.startswith("$JS.FC.S.C.")
    assert 10 < heard.index(questions[0]) < 12  # half of 2 MiB
    assert len(heard) - 1 == 21  # one more than fits
    site.after(SECOND)
    (beat,) = site.heard()
    assert f"Nats-Consumer-Stalled: {questions[0].reply}\r\n".encode() in beat.headers
    site.publish("$JS.FC.S.C.nope")
    assert site.heard() == []
    site.publish(questions[0].reply)
    again = site.heard()
    assert len([m for m in again if not m.status]) > 20
    site.publish(questions[0].reply)  # an old answer
    assert site.heard() == []
    for _ in range(9):
        waiting = [m for m in again if m.status.startswith("100 Flow")]
        if not waiting:
            break
        site.publish(waiting[-1].reply)
        again = site.heard()
    assert consumer.state().delivered_stream_seq == 100


def test_rate_limit_is_in_bits() -> None:
    site = Site(max_msg_size=1000)
    site.consumer(deliver_subject="in.p", ack_policy=ACK_NONE, rate_limit_bps=8 * 1000)
    for _ in range(10):
        site.publish("s.a", b"x" * 950)
    arrived = []
    for second in range(12):
        arrived += [second for _ in site.heard()]
        site.after(SECOND)
    assert arrived == list(range(10))


def test_another_stream_may_take_deliveries() -> None:
    site = Site()
    other = Stream(site.server.router, "T", open_log(None), sync=SYNC_INTERVAL)
    site.server.router.attach("copy.>", other)
    site.consumer(deliver_subject="copy.s", ack_policy=ACK_NONE)
    site.publish("s.a", b"hello")
    site.heard()
    copied = other.log.get(1)
    assert copied is not None
    assert (copied.subject, copied.payload) == ("copy.s", b"hello")


def test_paused_consumers_hand_out_nothing() -> None:
    site = Site()
    consumer = site.consumer(deliver_subject="in.p")
    consumer.pause(True)
    site.publish("s.a")
    assert site.heard() == []
    consumer.pause(False)
    assert len(site.heard()) == 1


@given(st.lists(st.integers(1, 3 * MIB) | st.none(), max_size=80))
def test_a_window_never_loses_count(steps: list[int | None]) -> None:
    window, unconfirmed, asked, limit = FlowWindow(), 0, -1, 2 * MIB
    for number, step in enumerate(steps):
        if step is None:
            assert window.answer(b"q") == (asked >= 0)
            if asked >= 0:
                unconfirmed, limit, asked = unconfirmed - asked, min(limit * 2, 32 * MIB), -1
        else:
            unconfirmed += step
            due = window.add(step)
            assert due == (asked < 0 and unconfirmed > limit // 2)
            if due:
                window.request(b"q")
                asked = unconfirmed
        assert (window.unconfirmed, window.limit) == (unconfirmed, limit), number


@given(
    st.lists(st.tuples(st.integers(1, 2000), st.integers(0, 2 * SECOND)), min_size=1, max_size=50)
)
def test_a_bucket_never_lets_more_through_than_rate_and_burst(steps: list[tuple[int, int]]) -> None:
    pacing, now, sent, start = Pacing(8 * 1000, 1000), 1_000, 0, 1_000
    for size, gap in steps:
        now += gap
        at = pacing.hold(1, 0, size, now)
        if at:
            assert at > now
            now = at
            assert pacing.hold(1, 0, size, now) == 0
        pacing.tell(0, size, now)
        sent += size
        assert sent - max(size, 1000) <= (now - start) / SECOND * 1000 + 1000 + 1


def test_a_message_that_who_listens_may_not_have_does_not_hold_up_others() -> None:
    site = Site()
    consumer = site.consumer(deliver_subject="to.me", ack_wait_ns=30 * SECOND)
    site.client.connection.permissions = ConnectionPermissions(subscribe_deny=["s.secret"])
    site.client.send("SUB s.* 1\r\nSUB to.me 2\r\n")
    for subject in ("s.a", "s.secret", "s.b"):
        site.publish(subject)
    site.server.reactor.settle()  # nobody goes on trying
    assert [(m.subject, m.sid) for m in site.heard() if m.sid == 2] == [("s.a", 2), ("s.b", 2)]
    assert consumer.push_bound()
