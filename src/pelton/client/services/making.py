"""What a client makes besides subscriptions: JetStream, services and service clients."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from ..base.arguments import checked
from ..base.steps import call

if TYPE_CHECKING:
    from collections.abc import Callable

    from ..base.durations import Duration
    from ..base.steps import Steps
    from .models import ServiceConfig
    from .serving import Serving

J = TypeVar("J")
SV = TypeVar("SV", bound="Serving[Any, Any, Any]")
SC = TypeVar("SC")


class Making(ABC, Generic[J, SV, SC]):
    """The part of a client that makes the shell's objects; their classes are loaded for the first ones."""

    @abstractmethod
    def _jetstream_type(self) -> Callable[..., J]:
        """The class of JetStream."""

    @abstractmethod
    def _service_types(self) -> tuple[Callable[..., SV], Callable[..., SC]]:
        """The classes of services and service clients."""

    @checked
    def jetstream(
        self: Any,
        *,
        domain: str | None = None,
        prefix: str | None = None,
        timeout: Duration | None = None,
    ) -> J:
        """Streams and consumers over this connection; domain or prefix replace those of the options."""
        domain, prefix = self._api_of(domain, prefix)
        seconds = self._timeout_of(timeout)
        made: J = self._jetstream_type()(self, domain=domain, prefix=prefix, timeout=seconds)
        return made

    def _adding_service(self, config: ServiceConfig) -> Steps[SV]:
        """A service on this connection; it has no endpoints yet, and answers to ``$SRV`` requests."""
        service = self._service_types()[0](self, config)
        yield from service._begin()
        return service

    add_service = call(_adding_service)

    def service_client(self) -> SC:
        """Finds services and calls them."""
        return self._service_types()[1](self)
