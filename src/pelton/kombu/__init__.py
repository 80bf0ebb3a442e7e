"""Celery and kombu over JetStream: importing this package makes ``pelton://`` a broker URL.

::

    import pelton.kombu
    from celery import Celery

    app = Celery("shop", broker="pelton://127.0.0.1:4222")

::

    transport.py   kombu's classes: Transport, Channel, QoS
    broker.py      queues as consumers of a stream, bindings, publishes and acks
    receiving.py   pull requests for several queues over one connection
    names.py       the subjects, and a task as a message                          no I/O

A queue is a durable consumer of one work-queue stream, so a task is stored before ``delay()`` returns,
and a task whose worker dies is delivered to another worker. Needs the extra ``celery``.
"""

from __future__ import annotations

from pelton.errors import not_installed

try:
    from kombu.transport import TRANSPORT_ALIASES

    from .transport import Transport
except ModuleNotFoundError as problem:
    raise not_installed(problem, "celery") from None

__all__ = ["Transport"]

TRANSPORT_ALIASES["pelton"] = "pelton.kombu:Transport"
