"""An application of Celery, for a worker in a process of its own."""

from __future__ import annotations

import os
import time

from celery import Celery

import pelton.kombu  # noqa: F401  # makes pelton:// a broker URL

app = Celery(
    "shop",
    broker=os.environ.get("SHOP_BROKER", "pelton://"),
    backend=os.environ.get("SHOP_RESULTS", "rpc://"),
)
app.conf.update(
    task_acks_late=True,
    task_reject_on_worker_lost=True,
    worker_prefetch_multiplier=1,
    broker_connection_retry_on_startup=True,
    broker_transport_options={"ack_wait": float(os.environ.get("SHOP_ACK_WAIT", "2"))},
)
JOURNAL = os.environ.get("SHOP_JOURNAL", "")


def note(line: str) -> None:
    """Append a line to the journal of the test, in one write."""
    with open(JOURNAL, "a") as file:
        file.write(f"{line}\n")


@app.task
def add(x: int, y: int) -> int:
    note(f"add {x} {y}")
    return x + y


@app.task
def slow(name: str, seconds: float) -> str:
    note(f"begin {name} {os.getpid()} {os.getppid()}")
    time.sleep(seconds)
    note(f"end {name}")
    return name


@app.task(bind=True, max_retries=3)
def flaky(self, name: str) -> int:
    note(f"try {name} {self.request.retries}")
    if self.request.retries < 2:
        raise self.retry(countdown=2)
    return self.request.retries
