"""A timer wheel: clients in time slots by their next deadline, so that a sweep visits only due clients.

A client is in one slot at most. A client whose deadline moves closer must be set again here; a client
whose deadline moves back is moved when its slot comes.
"""

from pelton.core.broker.reactor import Connection
from pelton.server.units import SECOND_NS

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Protocol

    class Due(Protocol):
        """The fields that the wheel keeps on a client."""

        due_ns: int  # time of the next check
        slot: int  # its slot in the wheel; 0: none


STEP_NS = SECOND_NS // 4
NEVER_NS = 1 << 62


class TimerWheel:
    """The clients of one server by their due times."""

    def __init__(self) -> None:
        """Start without clients."""
        self._slots: dict[int, dict[int, tuple[Connection, Due]]] = {}

    def put(self, connection: Connection, client: "Due", due_ns: int) -> None:
        """Set the due time of a client; it replaces the former one. NEVER_NS: no check."""
        slot = due_ns // STEP_NS if due_ns < NEVER_NS else 0
        client.due_ns = due_ns
        if slot != client.slot:
            self.drop(connection, client)
            if slot:
                client.slot = slot
                self._slots.setdefault(slot, {})[connection.id] = (connection, client)

    def drop(self, connection: Connection, client: "Due") -> None:
        """Remove a client from the wheel."""
        slot = self._slots.get(client.slot)
        client.slot = 0
        if slot is not None:
            slot.pop(connection.id, None)

    def take(self, now_ns: int) -> list[tuple[Connection, "Due"]]:
        """The due clients, in the order of the slots; they stay in the wheel until they are set
        again.
        """
        ready = sorted(slot for slot in self._slots if slot * STEP_NS <= now_ns)
        found = []
        for slot in ready:
            for connection, client in list(self._slots[slot].values()):
                if client.due_ns <= now_ns:
                    found.append((connection, client))
                else:
                    self.put(connection, client, client.due_ns)
        return found

    def next_ns(self) -> int:
        """The time of the next due client; NEVER_NS without clients."""
        for slot in [slot for slot, members in self._slots.items() if not members]:
            del self._slots[slot]
        soonest = NEVER_NS
        for slot in sorted(self._slots):
            if slot * STEP_NS >= soonest:
                break
            # a deadline that moved back is later than its slot, perhaps later than those of the next slot
            due_ns = min(client.due_ns for _, client in self._slots[slot].values())
            soonest = min(soonest, due_ns)
        return soonest
