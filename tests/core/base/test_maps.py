import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from pelton.core.base.maps import BytesMap, U64Map

VALUE = st.integers(0, 2**64 - 1)
FEW_KEYS = st.integers(0, 60)


class BytesMapMachine(RuleBasedStateMachine):
    """BytesMap against a dict."""

    def __init__(self) -> None:
        super().__init__()
        self.map = BytesMap()
        self.model: dict[bytes, int] = {}

    @rule(key=st.one_of(st.binary(max_size=40), FEW_KEYS.map(lambda i: b"k%d" % i)), value=VALUE)
    def put(self, key: bytes, value: int) -> None:
        self.map.set(key, value)
        self.model[key] = value

    @rule(first=FEW_KEYS, count=st.integers(1, 200), value=VALUE)
    def put_many(self, first: int, count: int, value: int) -> None:
        for i in range(first, first + count):
            self.map.set(b"k%d" % i, value)
            self.model[b"k%d" % i] = value

    @rule(key=st.binary(max_size=3))
    def remove_any(self, key: bytes) -> None:
        assert self.map.delete(key) == (self.model.pop(key, None) is not None)

    @rule(first=FEW_KEYS, count=st.integers(1, 200), step=st.integers(1, 3))
    def remove_many(self, first: int, count: int, step: int) -> None:
        for i in range(first, first + count, step):
            assert self.map.delete(b"k%d" % i) == (self.model.pop(b"k%d" % i, None) is not None)

    @rule()
    def empty(self) -> None:
        self.map.empty()
        self.model.clear()

    @invariant()
    def same(self) -> None:
        assert len(self.map) == self.map.count == len(self.model)
        assert sorted(self.map.items()) == sorted(self.model.items())
        for key, value in self.model.items():
            assert self.map.get(key) == value
        assert self.map.get(b"never there") is None


class U64MapMachine(RuleBasedStateMachine):
    """U64Map against a dict."""

    def __init__(self) -> None:
        super().__init__()
        self.map = U64Map()
        self.model: dict[int, int] = {}

    @rule(key=st.one_of(FEW_KEYS, VALUE), value=VALUE)
    def put(self, key: int, value: int) -> None:
        self.map.set(key, value)
        self.model[key] = value

    @rule(first=FEW_KEYS, count=st.integers(1, 200), value=VALUE)
    def put_many(self, first: int, count: int, value: int) -> None:
        for key in range(first, first + count):
            self.map.set(key, value)
            self.model[key] = value

    @rule(first=FEW_KEYS, count=st.integers(1, 200), step=st.integers(1, 3))
    def remove_many(self, first: int, count: int, step: int) -> None:
        for key in range(first, first + count, step):
            assert self.map.delete(key) == (self.model.pop(key, None) is not None)

    @rule()
    def empty(self) -> None:
        self.map.empty()
        self.model.clear()

    @invariant()
    def same(self) -> None:
        assert len(self.map) == self.map.count == len(self.model)
        assert sorted(self.map.items()) == sorted(self.model.items())
        for key, value in self.model.items():
            assert self.map.get(key) == value
        assert self.map.get(2**63 + 12345) == self.model.get(2**63 + 12345)


TestBytesMap = BytesMapMachine.TestCase
TestU64Map = U64MapMachine.TestCase


@given(st.dictionaries(st.binary(max_size=20), VALUE), st.data())
def test_every_order_of_removal_leaves_the_rest(
    model: dict[bytes, int], data: st.DataObject
) -> None:
    held = BytesMap()
    for key, value in model.items():
        held.set(key, value)
    for key in data.draw(st.permutations(list(model))):
        assert held.delete(key)
        assert not held.delete(key)
        del model[key]
        assert dict(held.items()) == model


def test_memory_per_key() -> None:
    held, count = BytesMap(), 300_000
    for i in range(count):
        held.set(b"orders.%06d" % i, i)
    assert held.bytes_held / count <= 64 + 13
    for i in range(count):
        assert held.delete(b"orders.%06d" % i)
    assert len(held) == 0
    assert held.bytes_held < 1024


def test_memory_stays_bounded_while_keys_come_and_go() -> None:
    held = BytesMap()
    for i in range(200_000):
        held.set(b"message-id-%d" % i, i)
        if i >= 100:
            assert held.delete(b"message-id-%d" % (i - 100))
    assert len(held) == 100
    assert held.bytes_held < 32 * 1024


def test_dense_keys_of_u64_stay_fast_and_small() -> None:
    held = U64Map()
    for i in range(200_000):
        held.set(i, i)
    assert held.bytes_held / 200_000 <= 48
    assert all(held.get(i) == i for i in range(0, 200_000, 997))
    for i in range(200_000):
        held.delete(i)
    assert held.bytes_held < 1024


@pytest.mark.parametrize("value", [-1, 2**64])
def test_values_out_of_range_are_refused(value: int) -> None:
    with pytest.raises(OverflowError):
        BytesMap().set(b"a", value)
    with pytest.raises(OverflowError):
        U64Map().set(value, 1)
