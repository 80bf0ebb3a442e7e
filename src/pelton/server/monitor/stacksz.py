"""/stacksz: the current stack of each thread."""

import sys
import threading
import traceback

from pelton.server.http import Answer
from pelton.server.monitor.query import Query
from pelton.server.monitor.server_state import ServerState


def answer(server_state: ServerState, query: Query) -> Answer:
    """Text, although the content type is JSON, as in nats-server."""
    return Answer(200, "application/json", stacks().encode())


def stacks() -> str:
    """One paragraph per Python thread; the core's sync threads are not listed."""
    names = {thread.ident: thread.name for thread in threading.enumerate()}
    parts = []
    for ident, frame in sys._current_frames().items():  # the only access to another thread's stack
        lines = "".join(traceback.format_stack(frame))
        parts.append(f"thread {ident} [{names.get(ident, 'unnamed')}]:\n{lines}")
    return "\n".join(parts)
