"""The CONSUMER calls of the API: from request to response.

Each function is a row of the dispatch table: (account, request, names from the subject) ->
response. Refusals are raised as ApiError.
"""

from collections.abc import Sequence

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
from penstock.engine import consumer_config, consumers, limits
from penstock.engine.account import Account
from penstock.engine.entries import consumer_info
from penstock.engine.settings import LIST_LIMIT, NAMES_LIMIT


def create(
    account: Account, request: CreateConsumerRequest, stream: str, *tokens: str
) -> ConsumerInfoResponse:
    """CONSUMER.CREATE.<stream>[.<name>[.<filter>]]; without a name, the older form, the server
    finds one.
    """
    _check_stream(request, stream)
    return _put(account, request, stream, name_of(request, False, tokens))


def create_durable(
    account: Account, request: CreateConsumerRequest, stream: str, *tokens: str
) -> ConsumerInfoResponse:
    """CONSUMER.DURABLE.CREATE.<stream>.<name>: the older form."""
    _check_stream(request, stream)
    return _put(account, request, stream, name_of(request, True, tokens))


def name_of(request: CreateConsumerRequest, durable: bool, tokens: Sequence[str]) -> str:
    """The consumer's name, by the tokens of the API subject behind the stream; "": any. ApiError
    when they do not agree.
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
    if len(tokens) > 1:
        if config.filter_subjects:
            raise errors.ConsumerMultipleFiltersNotAllowedError()
        if config.filter_subject != ".".join(tokens[1:]):
            raise errors.ConsumerCreateFilterSubjectMismatchError()
    if config.durable_name and config.durable_name != name:
        raise errors.ConsumerDurableNameNotMatchSubjectError()
    config.name = name
    return name


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


def _check_stream(request: CreateConsumerRequest, stream: str) -> None:
    if request.stream_name != stream:
        raise errors.StreamMismatchError()


def _put(
    account: Account, request: CreateConsumerRequest, stream: str, name: str
) -> ConsumerInfoResponse:
    consumer_config.check_replicas_supported(request.config)
    owner = account.stream(stream)
    present = owner.consumers.get(name)
    caps = limits.consumer_caps(account, owner, request.config)
    config = consumer_config.with_defaults(
        request.config,
        owner.config,
        pedantic=request.pedantic,
        present=present.config if present else None,
        caps=caps,
    )
    consumer_config.check(config, owner.config, caps)
    entry = consumers.put(account, owner, name or account.random_name(), config, request.action)
    return ConsumerInfoResponse(info=consumer_info(owner, entry, account.settings, account.now_ns))
