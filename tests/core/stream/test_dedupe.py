"""Message ids seen lately, against an ordered dict."""

from hypothesis import given, settings
from hypothesis import strategies as st

from pelton.core.stream.dedupe import MessageIds
from tests.ways import length

KEYS = st.integers(0, 300).map(lambda n: b"id-%d" % n) | st.binary(min_size=1, max_size=40)
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("put"), KEYS),
        st.tuples(st.just("get"), KEYS),
        st.tuples(st.just("expire"), st.integers(0, 60)),
        st.tuples(st.just("take_back"), st.integers(0, 12)),
    ),
    max_size=300,
)


@given(STEPS)
@settings(max_examples=length(40, 300), deadline=None)
def test_ids_are_remembered_until_they_are_forgotten(steps: list[tuple[str, object]]) -> None:
    ids, model = MessageIds(), dict[bytes, tuple[int, int]]()
    seq = 0
    for now, (verb, value) in enumerate(steps, 1):
        if verb == "put":
            assert isinstance(value, bytes)
            if value not in model:
                seq += 1
                ids.put(value, seq, now)
                model[value] = (seq, now)
        elif verb == "get":
            assert isinstance(value, bytes)
            assert ids.get(value) == model.get(value, (0, 0))[0]
        elif verb == "expire":
            assert isinstance(value, int)
            gone = [key for key, (_, came) in model.items() if came <= now - value]
            assert ids.expire(now - value) == len(gone) if now >= value else True
            for key in gone:
                del model[key]
        else:
            assert isinstance(value, int)
            gone = [key for key, (stored, _) in model.items() if stored > seq - value]
            assert ids.take_back(seq - value + 1 if seq >= value else 0) == len(gone)
            for key in gone:
                del model[key]
        assert ids.count == len(model)
    for key, (stored, _) in model.items():
        assert ids.get(key) == stored


def test_a_sliding_window_keeps_its_memory() -> None:
    ids = MessageIds()
    for n in range(200_000):
        ids.put(b"0123456789abcdef-%010d" % n, n + 1, n)
        ids.expire(max(n - 1000, 0))
    assert ids.count == 1000
    assert ids.memory_bytes() < 1000 * (27 + 24 + 8) * 6


def test_an_id_costs_its_length_and_a_few_dozen_bytes() -> None:
    ids = MessageIds()
    for n in range(100_000):
        ids.put(b"%032d" % n, n + 1, n)
    assert (
        ids.memory_bytes() / 100_000 < 32 + 24 + 24 + 32
    )  # at worst: buffer just doubled, table one third full
