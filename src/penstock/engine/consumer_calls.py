"""The CONSUMER calls of the API: from request to response.

Each function is a row of the dispatch table: (account, request, names from the subject) ->
response. Refusals are raised as ApiError.
"""

from penstock.api import errors_generated as errors
from penstock.api.calls import (
    ConsumerInfoResponse,
    ConsumerListResponse,
    ConsumerNamesResponse,
    ConsumersRequest,
    CreateConsumerRequest,
    EmptyRequest,
    LeaderStepDownRequest,
    Response,
    SuccessResponse,
)
from penstock.engine import consumer_config, consumers
from penstock.engine.account import Account
from penstock.engine.entries import consumer_info
from penstock.engine.settings import LIST_LIMIT, NAMES_LIMIT


def create_ephemeral(
    account: Account, request: CreateConsumerRequest, stream: str
) -> ConsumerInfoResponse:
    """CONSUMER.CREATE.<stream>: the older form; the server finds a name."""
    if request.stream_name != stream:
        raise errors.StreamMismatchError()
    if request.config.durable_name:
        raise errors.ConsumerEphemeralWithDurableNameError()
    return _put(account, request, stream, request.config.name or account.random_name())


def create_named(
    account: Account,
    request: CreateConsumerRequest,
    stream: str,
    name: str,
    filter_subject: str = "",
) -> ConsumerInfoResponse:
    """CONSUMER.CREATE.<stream>.<name>[.<filter>]."""
    if request.stream_name != stream:
        raise errors.StreamMismatchError()
    config = request.config
    if "/" in name or "\\" in name:
        raise errors.ConsumerNameContainsPathSeparatorsError()
    if filter_subject:
        if config.filter_subjects:
            raise errors.ConsumerMultipleFiltersNotAllowedError()
        if config.filter_subject != filter_subject:
            raise errors.ConsumerCreateFilterSubjectMismatchError()
    if config.durable_name and config.durable_name != name:
        raise errors.ConsumerDurableNameNotMatchSubjectError()
    config.name = name
    return _put(account, request, stream, name)


def create_durable(
    account: Account, request: CreateConsumerRequest, stream: str, name: str
) -> ConsumerInfoResponse:
    """CONSUMER.DURABLE.CREATE.<stream>.<name>: the older form."""
    if request.stream_name != stream:
        raise errors.StreamMismatchError()
    if not request.config.durable_name:
        raise errors.ConsumerDurableNameNotSetError()
    if request.config.durable_name != name:
        raise errors.ConsumerDurableNameNotMatchSubjectError()
    request.config.name = name
    return _put(account, request, stream, name)


def info(account: Account, request: EmptyRequest, stream: str, name: str) -> ConsumerInfoResponse:
    """CONSUMER.INFO."""
    owner, entry = account.consumer(stream, name)
    return ConsumerInfoResponse(info=consumer_info(owner, entry, account.settings, account.now_ns))


def names(account: Account, request: ConsumersRequest, stream: str) -> ConsumerNamesResponse:
    """CONSUMER.NAMES."""
    found = sorted(account.stream(stream).consumers)
    offset = min(max(request.offset, 0), len(found))
    page = found[offset : offset + NAMES_LIMIT]
    return ConsumerNamesResponse(total=len(found), offset=offset, limit=NAMES_LIMIT, consumers=page)


def list_(account: Account, request: ConsumersRequest, stream: str) -> ConsumerListResponse:
    """CONSUMER.LIST."""
    owner = account.stream(stream)
    found = sorted(owner.consumers)
    offset = min(max(request.offset, 0), len(found))
    page = [
        consumer_info(
            owner, owner.consumers[name], account.settings, account.now_ns, versioned=False
        )
        for name in found[offset : offset + LIST_LIMIT]
    ]
    return ConsumerListResponse(total=len(found), offset=offset, limit=LIST_LIMIT, consumers=page)


def delete(account: Account, request: EmptyRequest, stream: str, name: str) -> SuccessResponse:
    """CONSUMER.DELETE."""
    owner, entry = account.consumer(stream, name)
    consumers.delete(account, owner, entry)
    return SuccessResponse(success=True)


def step_down(account: Account, request: LeaderStepDownRequest, stream: str, name: str) -> Response:
    """CONSUMER.LEADER.STEPDOWN: a server alone has nobody to hand over to."""
    raise errors.ClusterRequiredError()


def _put(
    account: Account, request: CreateConsumerRequest, stream: str, name: str
) -> ConsumerInfoResponse:
    consumer_config.check_replicas_supported(request.config)
    owner = account.stream(stream)
    config = consumer_config.with_defaults(request.config, owner.config, pedantic=request.pedantic)
    consumer_config.check(config, owner.config)
    entry = consumers.put(account, owner, name, config, request.action)
    return ConsumerInfoResponse(info=consumer_info(owner, entry, account.settings, account.now_ns))
