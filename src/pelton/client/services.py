"""Services: endpoints that answer requests, and that tools find, name and count (ADR-32).

::

    $SRV.PING            $SRV.PING.<name>            $SRV.PING.<name>.<id>       who is there
    $SRV.INFO ...        $SRV.STATS ...                                          its endpoints, its figures
    <group>.<endpoint>   in a queue group                                        requests

Here are their values and JSON, and the checks of names. ``aio/services.py`` has the service itself, and the
client that finds services. The wire form is that of the other NATS clients, so each finds and calls the services
of all.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, TypeVar

import msgspec

from pelton.errors import ProtocolError

from .base.arguments import check_pattern, refuse

PREFIX = "$SRV"
VERBS = ("PING", "INFO", "STATS")
STALL_S = 0.3
"""How long to wait for the next answer when services are asked."""
QUEUE_GROUP = "q"
PING_TYPE = "io.nats.micro.v1.ping_response"
INFO_TYPE = "io.nats.micro.v1.info_response"
STATS_TYPE = "io.nats.micro.v1.stats_response"
ERROR = "Nats-Service-Error"
ERROR_CODE = "Nats-Service-Error-Code"
BAD_REQUEST, INTERNAL = "400", "500"

_NAME = re.compile(r"[A-Za-z0-9_-]+")
_NUMBER = r"(?:0|[1-9]\d*)"
_PRE = rf"(?:{_NUMBER}|\d*[A-Za-z-][0-9A-Za-z-]*)"
# The pattern of semver.org, which ADR-32 asks for.
_VERSION = re.compile(
    rf"{_NUMBER}\.{_NUMBER}\.{_NUMBER}(?:-{_PRE}(?:\.{_PRE})*)?(?:\+[0-9A-Za-z-]+(?:\.[0-9A-Za-z-]+)*)?",
    re.ASCII,
)
_QUEUE = re.compile(r"[^\s>]*>?")

S = TypeVar("S", bound=msgspec.Struct)


def check_name(name: str, what: str) -> str:
    """The name of a service or an endpoint; ValueError for one that it cannot have."""
    if not isinstance(name, str) or _NAME.fullmatch(name) is None:
        raise ValueError(f"{what} {name!r}: expected letters, digits, hyphens and underscores")
    return name


def check_queue(queue_group: str | None) -> str | None:
    """A queue group, or None for none; ValueError for one that is no subject."""
    if not isinstance(queue_group, str | None):
        raise TypeError(f"queue_group is text, not {type(queue_group).__name__} ({queue_group!r})")
    if queue_group is not None and _QUEUE.fullmatch(queue_group) is None:
        raise ValueError(f"queue group {queue_group!r}: it must not have blanks")
    return queue_group


def subjects_of(verb: str, name: str, service_id: str) -> tuple[str, str, str]:
    """The subjects of the requests that ask all services, those of a name, and one instance."""
    return f"{PREFIX}.{verb}", f"{PREFIX}.{verb}.{name}", f"{PREFIX}.{verb}.{name}.{service_id}"


def check_concurrency(concurrency: int | None) -> int | None:
    """How many handlers run at a time, None for the default; ValueError for less than one."""
    if concurrency is None:
        return None
    if isinstance(concurrency, bool) or not hasattr(type(concurrency), "__index__"):
        refuse("concurrency", "a whole number", concurrency)
    if concurrency < 1:
        raise ValueError(f"at least one handler runs at a time, got {concurrency}")
    return concurrency


def check_subject(subject: str) -> str:
    """The subject of an endpoint or a group; InvalidSubjectError for one that cannot be subscribed to."""
    if not isinstance(subject, str):
        raise TypeError(f"a subject is text, not {type(subject).__name__} ({subject!r})")
    check_pattern(subject)
    return subject


def check_texts(metadata: Mapping[str, str]) -> dict[str, str]:
    """Metadata as a dict; TypeError for what is not text."""
    if not isinstance(metadata, Mapping):
        raise TypeError(f"metadata is a mapping, not {type(metadata).__name__} ({metadata!r})")
    found = dict(metadata)
    for name, value in found.items():
        if not isinstance(name, str) or not isinstance(value, str):
            raise TypeError(f"metadata: {name!r} and its value must be text, not {value!r}")
    return found


@dataclass(frozen=True, kw_only=True, slots=True)
class ServiceConfig:
    """The configuration of a service. Raises ValueError and TypeError with the field's name.

    Example::

        config = ServiceConfig(name="weather", version="1.0.0", metadata={"region": "eu"})
        nc.add_service(config).stop()

    name: letters, digits, hyphens and underscores; instances of one service share it.
    version: a semantic version, such as "1.0.2".
    description: what the service does.
    metadata: any names and values.
    queue_group: each request goes to one instance of the group; None: to all instances.
    stats_handler: called for an ``EndpointStats`` when statistics are asked for; what it returns is added
        to them as ``data``, in JSON.

    Example: ``ServiceConfig(name="weather", version="1.0.0", description="temperatures")``
    """

    name: str
    version: str
    description: str = ""
    metadata: Mapping[str, str] = field(default_factory=dict)
    queue_group: str | None = QUEUE_GROUP
    stats_handler: Callable[[EndpointStats], object] | None = None

    def __post_init__(self) -> None:
        """Check the fields."""
        check_name(self.name, "name")
        if not isinstance(self.version, str) or _VERSION.fullmatch(self.version) is None:
            raise ValueError(
                f'version {self.version!r}: expected a semantic version, such as "1.0.2"'
            )
        if not isinstance(self.description, str):
            raise TypeError(f"description is text, not {type(self.description).__name__}")
        check_texts(self.metadata)
        check_queue(self.queue_group)
        if self.stats_handler is not None and not callable(self.stats_handler):
            raise TypeError(f"stats_handler is a function, not {self.stats_handler!r}")


class _Identity(msgspec.Struct, kw_only=True):
    name: str = ""
    id: str = ""
    version: str = ""
    metadata: dict[str, str] = {}


class ServicePing(_Identity, kw_only=True):
    """An instance of a service.

    Example::

        for ping in nc.service_client().ping(max_wait=0.1):
            print(ping.name, ping.id)

    name: the service. id: the instance. version, metadata: as configured. type: the kind of message.
    """

    type: str = PING_TYPE


class EndpointInfo(msgspec.Struct, kw_only=True):
    """An endpoint.

    Example::

        for service in nc.service_client().info(max_wait=0.1):
            print([endpoint.subject for endpoint in service.endpoints])

    name: its name. subject: where it takes requests. queue_group: "" when it has none. metadata: as given.
    """

    name: str = ""
    subject: str = ""
    queue_group: str = ""
    metadata: dict[str, str] = {}


class ServiceInfo(_Identity, kw_only=True):
    """An instance of a service with its endpoints.

    Example::

        for info in nc.service_client().info(max_wait=0.1):
            print(info.name, info.version, info.description)

    description: what the service does. endpoints: its EndpointInfo. Otherwise as ServicePing.
    """

    type: str = INFO_TYPE
    description: str = ""
    endpoints: list[EndpointInfo] = []


class EndpointStats(msgspec.Struct, kw_only=True, omit_defaults=False):
    """The statistics of an endpoint.

    Example::

        for service in nc.service_client().stats(max_wait=0.1):
            for endpoint in service.endpoints:
                print(endpoint.name, endpoint.num_requests, endpoint.last_error)

    name, subject, queue_group: as in EndpointInfo.
    num_requests: requests that were handled.
    num_errors: those that were answered with an error, or whose handler raised.
    last_error: the last error, "" for none.
    processing_time_ns: time in the handler, nanoseconds.
    average_processing_time_ns: the same for one request.
    data: what the stats handler of the service returned, None without one.
    """

    name: str = ""
    subject: str = ""
    queue_group: str = ""
    num_requests: int = 0
    num_errors: int = 0
    last_error: str = ""
    processing_time_ns: int = msgspec.field(default=0, name="processing_time")
    average_processing_time_ns: int = msgspec.field(default=0, name="average_processing_time")
    data: Any = None


class ServiceStats(_Identity, kw_only=True):
    """An instance of a service with its statistics.

    Example::

        for stats in nc.service_client().stats(max_wait=0.1):
            print(stats.name, stats.started, len(stats.endpoints))

    started: when it began to count. endpoints: its EndpointStats. Otherwise as ServicePing.
    """

    type: str = STATS_TYPE
    started: datetime = datetime.fromtimestamp(0, UTC)
    endpoints: list[EndpointStats] = []


def encode(value: ServicePing | ServiceInfo | ServiceStats) -> bytes:
    """The JSON of an answer, with the fields and the order of nats.go."""
    body: dict[str, Any] = msgspec.to_builtins(value, builtin_types=(datetime,))
    if isinstance(value, ServiceStats):
        # other clients expect a fraction
        body["started"] = value.started.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
        for endpoint in body["endpoints"]:
            if endpoint["data"] is None:
                del endpoint["data"]
    return msgspec.json.encode(body)


def decode(data: bytes, kind: type[S]) -> S:
    """An answer of a service; ProtocolError when it has another form.

    Other clients write null where there is nothing.
    """
    try:
        return msgspec.convert(_without_nulls(msgspec.json.decode(data)), kind)
    except msgspec.MsgspecError as error:
        raise ProtocolError(f"not the answer of a service: {error}: {data[:200]!r}") from None


def _without_nulls(value: Any) -> Any:
    if isinstance(value, dict):
        return {
            # ``data`` is the service's own: a null there may mean something.
            name: each if name == "data" else _without_nulls(each)
            for name, each in value.items()
            if each is not None
        }
    return [_without_nulls(each) for each in value] if isinstance(value, list) else value
