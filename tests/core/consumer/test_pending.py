"""Unacknowledged messages and the ack floor, against a dict."""

from hypothesis import given, settings
from hypothesis import strategies as st

from pelton.core.consumer.pending import PendingMessages
from tests.ways import length

STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("deliver"), st.integers(1, 3)),
        st.tuples(st.just("ack"), st.integers(0, 400)),
        st.tuples(st.just("ack"), st.integers(0, 20)),
        st.tuples(st.just("ack_upto"), st.integers(0, 40)),
        st.tuples(st.just("drop_below"), st.integers(0, 40)),
        st.tuples(st.just("purge"), st.integers(0, 40)),
        st.tuples(st.just("refuse"), st.integers(0, 60)),
        st.tuples(st.just("redeliver"), st.just(0)),
    ),
    max_size=200,
)


class Model:
    """What a consumer owes, the obvious way."""

    def __init__(self) -> None:
        self.held: dict[int, list[int]] = {}  # seq -> [cseq, deliveries]
        self.queue: list[int] = []
        self.floor = (0, 0)
        self.cseq = 0
        self.seq = 0

    def gone(self, seq: int) -> None:
        lowest = min(self.held) == seq
        del self.held[seq]
        if seq in self.queue:
            self.queue.remove(seq)
        if not self.held:
            self.floor = (self.cseq, self.seq)
        elif lowest:
            first = min(self.held)
            self.floor = (self.held[first][0] - 1, first - 1)


def step_model(model: Model, pending: PendingMessages, verb: str, n: int) -> None:
    if verb == "deliver":
        model.seq += n
        model.cseq += 1
        model.held[model.seq] = [model.cseq, 1]
        pending.deliver(model.seq, model.cseq, 0)
    elif verb == "ack":
        known = n in model.held
        if known:
            model.gone(n)
        assert pending.ack(n, model.cseq, model.seq) == known
    elif verb == "ack_upto":
        hit = sorted(seq for seq in model.held if seq <= n)
        if hit:
            cseq = model.held[hit[-1]][0]
            for seq in hit:
                model.gone(seq)
            if model.held:
                model.floor = (cseq, n)
        assert pending.ack_upto(n, model.cseq, model.seq) == len(hit)
    elif verb == "drop_below":
        hit = sorted(seq for seq in model.held if seq < n)
        for seq in hit:
            model.gone(seq)
        assert pending.drop_below(n, model.cseq, model.seq) == len(hit)
    elif verb == "purge":
        hit = sorted(seq for seq in model.held if seq < n)
        cseq = max([model.floor[0], *(model.held[seq][0] for seq in hit)])
        floor = model.floor[1]
        for seq in hit:
            model.gone(seq)
        model.floor = (cseq, max(floor, n - 1))
        assert pending.purge(n) == len(hit)
    elif verb == "refuse":
        known = n in model.held
        if known and n not in model.queue:
            model.queue.append(n)
        assert pending.refuse(n) == known
    else:
        expected = model.queue.pop(0) if model.queue else 0
        if expected:
            model.held[expected][1] += 1
        assert pending.redeliver(0) == expected


@given(STEPS)
@settings(max_examples=length(50, 400), deadline=None)
def test_pending_messages_do_what_a_dict_does(steps: list[tuple[str, int]]) -> None:
    model, pending = Model(), PendingMessages()
    for verb, n in steps:
        step_model(model, pending, verb, n)
        assert pending.live == len(model.held)
        assert (pending.floor_cseq, pending.floor_seq) == model.floor
        assert pending.entries() == [(seq, *model.held[seq]) for seq in sorted(model.held)]


def test_holes_do_not_pile_up_behind_one_unacknowledged_message() -> None:
    pending = PendingMessages()
    for seq in range(1, 20_001):
        pending.deliver(seq, seq, 0)
        if seq > 1:
            pending.ack(seq, seq, seq)
    assert pending.entries() == [(1, 1, 1)]
    assert pending.places() < 200
    pending.ack(1, 20_000, 20_000)
    assert (pending.floor_cseq, pending.floor_seq) == (20_000, 20_000)
