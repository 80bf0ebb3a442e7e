"""Finding services, and calling them: requests to all of them, and their answers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Generic, TypeVar

from pelton.errors import NoRespondersError, ProtocolError, ServiceError

from ..base.message import BaseMessage
from ..base.steps import Step, call
from .models import (
    ERROR,
    ERROR_CODE,
    INFO_TYPE,
    PING_TYPE,
    STATS_TYPE,
    ServiceInfo,
    ServicePing,
    ServiceStats,
    check_name,
    decode,
)
from .serving import PREFIX

if TYPE_CHECKING:
    from ..base.durations import Duration
    from ..base.steps import Flow, Steps
    from ..plans.jetstream import Headers
    from ..session.session import Session

M = TypeVar("M", bound=BaseMessage)
T = TypeVar("T")
A = TypeVar("A", ServicePing, ServiceInfo, ServiceStats)

STALL_S = 0.3
"""How long to wait for the next answer."""


class Finding(Generic[M]):
    """Finds services and calls them."""

    def __init__(self, client: Session[M]) -> None:
        """Sends no request."""
        self.client = client
        """The client that it belongs to."""

    def _pinging(
        self,
        name: str = "",
        service_id: str = "",
        *,
        max_wait: Duration | None = None,
        stall: Duration = STALL_S,
    ) -> Steps[list[ServicePing]]:
        """Who is there: all instances, those of the service ``name``, or the one with ``service_id``.

        Waits at most ``max_wait`` seconds (the timeout of the options), and ``stall`` seconds for each next
        answer. An empty list when nobody answers; ValueError for a ``service_id`` without a name.
        """
        return self._asking("PING", name, service_id, max_wait, stall, ServicePing, PING_TYPE)

    ping = call(_pinging)

    def _informing(
        self,
        name: str = "",
        service_id: str = "",
        *,
        max_wait: Duration | None = None,
        stall: Duration = STALL_S,
    ) -> Steps[list[ServiceInfo]]:
        """The endpoints of services; arguments as ``ping``."""
        return self._asking("INFO", name, service_id, max_wait, stall, ServiceInfo, INFO_TYPE)

    info = call(_informing)

    def _counting(
        self,
        name: str = "",
        service_id: str = "",
        *,
        max_wait: Duration | None = None,
        stall: Duration = STALL_S,
    ) -> Steps[list[ServiceStats]]:
        """The statistics of services; arguments as ``ping``."""
        return self._asking("STATS", name, service_id, max_wait, stall, ServiceStats, STATS_TYPE)

    stats = call(_counting)

    def _calling(
        self,
        subject: str,
        data: bytes = b"",
        *,
        headers: Headers | None = None,
        timeout: Duration | None = None,
    ) -> Steps[M]:
        """Call an endpoint; returns its answer.

        Raises ServiceError when the answer is an error of the service, and otherwise as
        ``Client.request``.
        """
        answer = yield from self.client._requesting(subject, data, headers=headers, timeout=timeout)
        code = answer.header(ERROR_CODE)
        if code is not None:
            raise ServiceError(code, answer.header(ERROR) or "", answer.data)
        return answer

    request = call(_calling)

    def _asking(
        self,
        verb: str,
        name: str,
        service_id: str,
        max_wait: Duration | None,
        stall: Duration,
        kind: type[A],
        type_name: str,
    ) -> Steps[list[A]]:
        if service_id and not name:
            raise ValueError("give the name of the service, too, to ask for one instance")
        tokens = [PREFIX, verb]
        tokens += [check_name(name, "service name")] if name else []
        tokens += [check_name(service_id, "service id")] if service_id else []
        answers = self.client._gathering(
            ".".join(tokens), max_messages=1 if service_id else None, max_wait=max_wait, stall=stall
        )
        try:
            messages = yield from _all(answers)
        except NoRespondersError:
            return []
        found: list[A] = []
        for message in messages:
            try:
                each = decode(message.data, kind)
            except ProtocolError as error:
                self.client._report(error)
                continue
            if each.type == type_name:
                found.append(each)
        return found


def _all(flow: Flow[T]) -> Steps[list[T]]:
    """The items of a flow."""
    found: list[T] = []
    answer: Any = None
    try:
        item = flow.send(None)
        while True:
            answer = None
            try:
                if isinstance(item, Step):
                    answer = yield item
                else:
                    found.append(item)
            except BaseException as error:
                item = flow.throw(error)
            else:
                item = flow.send(answer)
    except StopIteration:
        return found
