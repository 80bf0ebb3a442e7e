"""The calls of the gateway for gRPC: path, messages, and which side sends many.

They are read from the service in ``gateway.proto``, so no other generated file has to match the
installed grpcio.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from google.protobuf import message_factory

from ..wire import gateway_pb2 as pb

MESSAGE_BYTES_MAX = 64 << 20
SERVICE = pb.DESCRIPTOR.services_by_name["GrpcGateway"]


class Method(NamedTuple):
    """One call: its path, the classes of its messages, and whether the client sends many."""

    path: str
    request: Any
    response: Any
    many_requests: bool


METHODS: dict[str, Method] = {
    method.name: Method(
        f"/{SERVICE.full_name}/{method.name}",
        message_factory.GetMessageClass(method.input_type),
        message_factory.GetMessageClass(method.output_type),
        method.client_streaming,
    )
    for method in SERVICE.methods
}
"""Every call by its name; each answers with a stream of messages."""


def choices(message: Any, oneof: str) -> dict[str, str]:
    """The fields of a oneof by the full name of their messages."""
    fields = message.DESCRIPTOR.oneofs_by_name[oneof].fields
    return {field.message_type.full_name: field.name for field in fields}


EVENT_FIELDS = choices(pb.GetEventsResponse, "type")
PENDING_FIELDS = choices(pb.PendingCommand, "command")
BUS_FIELDS = choices(pb.Event, "type")
