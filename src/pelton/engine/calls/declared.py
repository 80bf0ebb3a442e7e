"""Declared streams and consumers: the server creates missing ones, updates different ones and
deletes none.

The configurations are those of the JSON API, with the same checks and errors.
"""

import json
from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from pelton.api.calls import CreateConsumerRequest, Response, StreamConfigRequest
from pelton.api.codec import decode_request
from pelton.api.errors import error_from
from pelton.engine.account.account import JetStreamAccount
from pelton.engine.base.steps import finish
from pelton.engine.calls import consumer_calls, stream_calls
from pelton.engine.config import stream_config

CREATED, CHANGED, THERE = "created", "changed", "there"


def declare_stream(account: JetStreamAccount, name: str, fields: Mapping[str, Any]) -> str:
    """Create or update a stream: CREATED, CHANGED or THERE. ApiError: the server refuses the
    configuration. JsonError: it is not valid.
    """
    request = decode_request(StreamConfigRequest, json.dumps(fields).encode())
    present = account.streams.get(name)
    if present is None:
        _done(account, lambda late: finish(stream_calls.create(account, request, late, name)))
        return CREATED
    wanted = stream_config.checked(stream_config.from_request(request), find=account.config_of)
    if stream_config.same(wanted, present.config):
        return THERE
    finish(stream_calls.update(account, request, name))
    return CHANGED


def declare_consumer(
    account: JetStreamAccount, stream: str, name: str, fields: Mapping[str, Any]
) -> str:
    """The same for a consumer of an existing stream."""
    request = decode_request(
        CreateConsumerRequest,
        json.dumps({"stream_name": stream, "config": dict(fields)}).encode(),
    )
    owner = account.streams.get(stream)
    present = owner.consumers.get(name) if owner is not None else None
    before = msgspec.structs.replace(present.config) if present is not None else None
    _done(account, lambda late: consumer_calls.create(account, request, late, stream, name))
    if before is None:
        return CREATED
    assert present is not None
    return THERE if before == present.config else CHANGED


def _done(account: JetStreamAccount, call: Callable[[Callable[[Response], None]], object]) -> None:
    """Carry out a call that may answer later. ApiError: the late answer is an error."""
    late: list[Response] = []
    call(late.append)
    account.waiting_files.commit()
    for answer in late:
        if answer.error is not None:
            raise error_from(answer.error)
