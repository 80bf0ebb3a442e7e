"""The CONSUMER calls of the API: from request to response.

Each function is a row of the dispatch table: (account, request, names from the subject) ->
response. Refusals are raised as ApiError.
"""

import re
from collections.abc import Callable, Generator, Sequence
from typing import Any, TypeVar

from msgspec import Raw

from pelton.api import errors_generated as errors
from pelton.api.calls import (
    ConsumerInfoResponse,
    ConsumerListResponse,
    ConsumerNamesResponse,
    ConsumerPauseRequest,
    ConsumerPauseResponse,
    ConsumerResetRequest,
    ConsumerResetResponse,
    ConsumersRequest,
    ConsumerUnpinRequest,
    CreateConsumerRequest,
    EmptyRequest,
    LeaderStepDownRequest,
    Response,
    SuccessResponse,
)
from pelton.api.codec import encode
from pelton.api.consumers import ConsumerConfig
from pelton.engine.account import limits
from pelton.engine.account.account import JetStreamAccount
from pelton.engine.account.catalog import ConsumerEntry, StreamEntry, consumer_info, remaining
from pelton.engine.base.hashes import stream_identity
from pelton.engine.base.settings import LIST_LIMIT, LIST_STEP, NAMES_LIMIT
from pelton.engine.config import consumer_config
from pelton.engine.lifecycles import consumers

T = TypeVar("T", bound=Response)
Late = Callable[[Response], None]
_IDENTITY = re.compile(rb"\r\nNats-Stream-Identity:[ \t]*([^\r\n]*)\r\n")


def create(
    account: JetStreamAccount,
    request: CreateConsumerRequest,
    late: Late,
    stream: str,
    *tokens: str,
) -> ConsumerInfoResponse | None:
    """CONSUMER.CREATE.<stream>[.<name>[.<filter>]].

    In the older form, without a name, the server chooses one.
    """
    _check_stream(request, stream)
    return _put(account, request, late, stream, name_of(request, False, tokens))


def create_durable(
    account: JetStreamAccount,
    request: CreateConsumerRequest,
    late: Late,
    stream: str,
    *tokens: str,
) -> ConsumerInfoResponse | None:
    """CONSUMER.DURABLE.CREATE.<stream>.<name>: the older form."""
    _check_stream(request, stream)
    return _put(account, request, late, stream, name_of(request, True, tokens))


def name_of(request: CreateConsumerRequest, durable: bool, tokens: Sequence[str]) -> str:
    """Return the consumer's name from the tokens of the API subject behind the stream; "": any.

    ApiError: the subject and the configuration differ.
    """
    config = request.config
    if not tokens:
        if config.durable_name:
            raise errors.ConsumerEphemeralWithDurableNameError()
        return config.name
    name = tokens[0]
    if durable and not config.durable_name:
        raise errors.ConsumerDurableNameNotSetError()
    if "/" in name or "\\" in name:
        raise errors.ConsumerNameContainsPathSeparatorsError()
    if config.durable_name and config.durable_name != name:
        raise errors.ConsumerDurableNameNotMatchSubjectError()
    if len(tokens) > 1:
        if config.filter_subjects:
            raise errors.ConsumerMultipleFiltersNotAllowedError()
        if config.filter_subject != ".".join(tokens[1:]):
            raise errors.ConsumerCreateFilterSubjectMismatchError()
    config.name = name
    return name


def info(
    account: JetStreamAccount, request: EmptyRequest, stream: str, name: str
) -> ConsumerInfoResponse:
    """CONSUMER.INFO."""
    owner, entry = account.consumer(stream, name)
    return ConsumerInfoResponse(info=consumer_info(owner, entry, account.settings, account.now_ns))


def names(
    account: JetStreamAccount, request: ConsumersRequest, stream: str
) -> ConsumerNamesResponse:
    """CONSUMER.NAMES."""
    owner = account.stream(stream)
    found = owner.public_names()
    if owner.offline:
        found = sorted([*found, *owner.offline])
    offset = min(max(request.offset, 0), len(found))
    page = found[offset : offset + NAMES_LIMIT]
    return ConsumerNamesResponse(total=len(found), offset=offset, limit=NAMES_LIMIT, consumers=page)


def list_(
    account: JetStreamAccount, request: ConsumersRequest, stream: str
) -> Generator[None, None, ConsumerListResponse]:
    """CONSUMER.LIST."""
    owner = account.stream(stream)
    found = owner.public_names()
    offset = min(max(request.offset, 0), len(found))
    page: list[Any] = []
    for number, name in enumerate(found[offset : offset + LIST_LIMIT], 1):
        entry = owner.consumers.get(name)
        if entry is not None:  # not deleted meanwhile
            shown = consumer_info(owner, entry, account.settings, account.now_ns, versioned=False)
            page.append(Raw(encode(shown)))
        if number % LIST_STEP == 0:
            yield
    return ConsumerListResponse(
        total=len(found) + len(owner.offline),
        offset=offset,
        limit=LIST_LIMIT,
        consumers=page,
        missing=sorted(owner.offline),
        offline=dict(owner.offline),
    )


def pause(
    account: JetStreamAccount, request: ConsumerPauseRequest, stream: str, name: str
) -> ConsumerPauseResponse:
    """CONSUMER.PAUSE: pause the consumer until a time, or resume it."""
    owner, entry = account.consumer(stream, name)
    until_ns = request.pause_until
    if entry.config.pause_until != (until_ns or None):
        consumers.pause(account, owner, entry, until_ns)
    remaining_ns = remaining(until_ns, account.now_ns)
    return ConsumerPauseResponse(
        paused=remaining_ns > 0, pause_until=until_ns, pause_remaining=remaining_ns
    )


def unpin(
    account: JetStreamAccount, request: ConsumerUnpinRequest, stream: str, name: str
) -> Response:
    """CONSUMER.UNPIN: the messages of the group go to another client."""
    if not request.group:
        raise errors.InvalidJSONError("consumer group not specified")
    if not consumer_config.valid_group(request.group):
        raise errors.ConsumerInvalidGroupNameError()
    _, entry = account.consumer(stream, name)
    if request.group not in entry.config.priority_groups:
        raise errors.ConsumerInvalidPriorityGroupError()
    entry.core.unpin(request.group, "admin")
    return Response()


def reset(
    account: JetStreamAccount, request: ConsumerResetRequest, stream: str, name: str
) -> ConsumerResetResponse | None:
    """CONSUMER.RESET: begin again; see `consumers.reset`. A consumer that does not exist gets no
    answer.
    """
    owner = account.streams.get(stream)
    entry = owner.consumers.get(name) if owner else None
    if owner is None or entry is None:
        return None
    seq = consumers.reset(account, owner, entry, request.seq)
    info = consumer_info(owner, entry, account.settings, account.now_ns)
    return ConsumerResetResponse(info=info, reset_seq=seq)


def delete(
    account: JetStreamAccount, request: EmptyRequest, late: Late, stream: str, name: str
) -> SuccessResponse | None:
    """CONSUMER.DELETE. It also deletes a consumer that cannot be opened, or one of an offline
    stream.
    """
    if name in account.stream(stream).offline:
        consumers.delete_offline(account, account.stream(stream), name)
        return SuccessResponse(success=True)
    owner, entry = account.consumer(stream, name)
    if account.waiting_files.waits(entry):
        account.waiting_files.commit()
        owner, entry = account.consumer(stream, name)
    consumers.delete(account, owner, entry)

    def answer(error: OSError | None) -> SuccessResponse:
        if error is not None:
            return SuccessResponse(error=errors.StreamGeneralError(error).body())
        return SuccessResponse(success=True)

    return _when_on_disk(account, entry, answer, late)


def step_down(
    account: JetStreamAccount, request: LeaderStepDownRequest, stream: str, name: str
) -> Response:
    """CONSUMER.LEADER.STEPDOWN: a single server cannot give up the lead."""
    raise errors.ClusterRequiredError()


def identity_for_readers(
    account: JetStreamAccount, request: CreateConsumerRequest, headers: bytes, stream: str
) -> bytes:
    """Return the headers that identify the stream to a mirror or source that reads it, so that the
    reader notices when another stream has taken the name. 10225: it is not the stream that the
    reader knows.
    """
    if stream not in account.streams or not (request.config.direct or request.config.sourcing):
        return b""
    identity = _identity(account.streams[stream])
    known = _IDENTITY.search(headers)
    if known and known[1].strip() not in (b"", identity):
        raise errors.ConsumerStreamIdentityMismatchError(identity.decode())
    return b"NATS/1.0\r\nNats-Stream-Identity: %s\r\n\r\n" % identity


def identity_if_asked(
    account: JetStreamAccount, request: ConsumerResetRequest, headers: bytes, stream: str
) -> bytes:
    """Return the same headers, for readers that have named the stream they know."""
    if stream not in account.streams or not _IDENTITY.search(headers):
        return b""
    return b"NATS/1.0\r\nNats-Stream-Identity: %s\r\n\r\n" % _identity(account.streams[stream])


def _identity(stream: StreamEntry) -> bytes:
    return stream_identity(stream.created_ns).encode()


def _check_stream(request: CreateConsumerRequest, stream: str) -> None:
    if request.stream_name != stream:
        raise errors.StreamMismatchError()


def _name_of_origin(account: JetStreamAccount, stream: StreamEntry, config: ConsumerConfig) -> str:
    """Return the name of the consumer that a mirror or source of another server reads through. The
    reader asks again under the same name after it has lost the last one.
    """
    if stream.config.retention == "limits":
        config.name = f"{config.name}-{account.random_name()}"
    else:
        # the reader takes messages out of the stream, so only its acks may remove them
        config.direct = False
        config.durable_name = config.name
        config.ack_policy = "flow_control"
        config.ack_wait = config.max_deliver = config.inactive_threshold = 0
    return config.name


def _put(
    account: JetStreamAccount, request: CreateConsumerRequest, late: Late, stream: str, name: str
) -> ConsumerInfoResponse | None:
    consumer_config.check_replicas_supported(request.config)
    owner = account.stream(stream)
    if request.config.direct and request.config.sourcing and name:
        name = _name_of_origin(account, owner, request.config)
    caps = limits.consumer_caps(account, owner, request.config)
    config = consumer_config.with_defaults(
        request.config, owner.config, pedantic=request.pedantic, caps=caps
    )
    consumer_config.check(config, owner.config, caps)
    entry = consumers.put(account, owner, name or account.random_name(), config, request.action)

    def answer(error: OSError | None) -> ConsumerInfoResponse:
        if error is not None:
            return ConsumerInfoResponse(error=errors.ConsumerStoreFailedError(error).body())
        until_ns = entry.paused_until_ns
        if account.now_ns < until_ns:
            account.advisories.pause(stream, name, until_ns, account.now_ns)
        info = consumer_info(owner, entry, account.settings, account.now_ns)
        return ConsumerInfoResponse(info=info)

    return _when_on_disk(account, entry, answer, late)


def _when_on_disk(
    account: JetStreamAccount,
    entry: ConsumerEntry,
    answer: Callable[[OSError | None], T],
    late: Late,
) -> T | None:
    """Return the answer, or let it follow when the files of a consumer are on the disk."""
    if not account.waiting_files.waits(entry):
        return answer(None)
    account.waiting_files.then(entry, lambda error: late(answer(error)))
    return None
