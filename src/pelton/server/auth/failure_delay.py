"""Delays the answers to failed authentication attempts. The delay grows with the failures of an address.

The first failures are answered at once, because users mistype and tests expect failures. Later
answers wait one after the other, so parallel connections gain nothing. Successful attempts do not
wait. The state is bounded: a few numbers per address with recent failures. Pure; the caller gives
the time.
"""

from collections import OrderedDict

from pelton.server.units import SECOND_NS

FREE = 10  # failures with an immediate answer
FORGET_NS = SECOND_NS  # one failure is forgotten in this time
STEP_NS = 50_000_000  # the first wait; each further failure doubles it
GAP_MAX_NS = SECOND_NS // 2  # between the answers of one address
WAIT_MAX_NS = 3 * SECOND_NS // 2
UNHEARD = 1000  # waiting failures of one address; further attempts are not checked
ADDRESSES_MAX = 10_000


class _Address:
    __slots__ = ("failures", "next_ns", "seen_ns", "waiting")

    def __init__(self, now_ns: int) -> None:
        self.failures = 0.0
        self.seen_ns = now_ns
        self.next_ns = 0  # when the next answer may be sent
        self.waiting = 0


class FailureDelay:
    """Counts failures by address."""

    def __init__(self) -> None:
        """Start without any failed attempt."""
        self._addresses: OrderedDict[str, _Address] = OrderedDict()

    def failed(self, host: str, now_ns: int) -> int:
        """Count a failure: the time of its answer, at most WAIT_MAX_NS from now; 0 for at once.

        The caller reports the end of the wait with answered().
        """
        key = group(host)
        address = self._addresses.get(key)
        if address is None:
            address = self._addresses[key] = _Address(now_ns)
            while len(self._addresses) > ADDRESSES_MAX:
                self._addresses.popitem(last=False)
        else:
            self._addresses.move_to_end(key)
        forgotten = (now_ns - address.seen_ns) / FORGET_NS
        address.failures = max(address.failures - forgotten, 0.0) + 1
        address.seen_ns = now_ns
        if address.failures <= FREE:
            return 0
        doublings = min(int(address.failures) - FREE, 10)
        gap = min(STEP_NS << max(doublings - 1, 0), GAP_MAX_NS)
        address.next_ns = min(max(address.next_ns, now_ns) + gap, now_ns + WAIT_MAX_NS)
        address.waiting += 1
        return address.next_ns

    def answered(self, host: str) -> None:
        """Count a delayed answer as sent, or its connection as closed."""
        address = self._addresses.get(group(host))
        if address is not None and address.waiting:
            address.waiting -= 1

    def too_many_waiting(self, host: str) -> bool:
        """Whether so many failures of this address wait that further attempts are not checked."""
        if not self._addresses:
            return False
        address = self._addresses.get(group(host))
        return address is not None and address.waiting >= UNHEARD


def group(host: str) -> str:
    """The address that failures are counted by: for IPv6, the host's network."""
    if ":" not in host or host.startswith("::"):
        return host
    return ":".join(host.split("%")[0].split(":")[:4])
