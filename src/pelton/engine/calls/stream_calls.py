"""The STREAM calls of the API except those for messages, and INFO: from request to response.

Each function is a row of the dispatch table: (account, request, names from the subject) ->
response. Refusals are raised as ApiError.
"""

from collections.abc import Callable
from typing import Any

from msgspec import Raw, Struct

from pelton.api import errors_generated as errors
from pelton.api.calls import (
    AccountInfoResponse,
    EmptyRequest,
    Response,
    StreamConfigRequest,
    StreamCreateResponse,
    StreamInfoRequest,
    StreamInfoResponse,
    StreamListRequest,
    StreamListResponse,
    StreamNamesRequest,
    StreamNamesResponse,
    StreamPurgeRequest,
    StreamPurgeResponse,
    StreamUpdateResponse,
    SuccessResponse,
)
from pelton.api.codec import encode
from pelton.engine.account import limits
from pelton.engine.account.account import JetStreamAccount
from pelton.engine.account.catalog import (
    deleted_sequences,
    leader,
    showing_stream,
    subjects_of,
)
from pelton.engine.base.settings import (
    LIST_LIMIT,
    LIST_STEP,
    MAX_SEQUENCE,
    NAMES_LIMIT,
    SUBJECTS_LIMIT,
)
from pelton.engine.base.steps import Steps
from pelton.engine.base.subject_checks import is_valid
from pelton.engine.config import stream_config
from pelton.engine.lifecycles import streams


def account_info(account: JetStreamAccount, request: EmptyRequest) -> AccountInfoResponse:
    """INFO."""
    return AccountInfoResponse(info=limits.account_info(account))


def create(
    account: JetStreamAccount,
    request: StreamConfigRequest,
    late: Callable[[Response], None],
    name: str,
) -> Steps[StreamCreateResponse | None]:
    """STREAM.CREATE."""
    if request.name != name:
        raise errors.StreamMismatchError()
    if "/" in name or "\\" in name:
        raise errors.StreamNameContainsPathSeparatorsError()
    config = stream_config.from_request(request)
    stream_config.check_create(config)
    limits.check_stream_count(account, config)
    revision = account.revision
    config = yield from stream_config.checking(
        config,
        pedantic=request.pedantic,
        find=account.config_of,
        caps=limits.stream_caps(account, config),
    )
    if account.revision != revision:  # other streams have changed meanwhile
        limits.check_stream_count(account, config)
        stream_config.check_neighbours(config, account.config_of, pedantic=request.pedantic)
    stream_config.check_replicas_supported(config)
    entry = streams.create(account, config)
    waits = account.waiting_files.waits(entry.files)
    written: list[OSError | None] = []  # the disk may answer before all of the sources are shown
    shown: list[StreamCreateResponse] = []

    def settle(error: OSError | None) -> None:
        written.append(error)
        if shown:
            refused = errors.StreamCreateError(error).body() if error is not None else None
            late(shown[0] if refused is None else StreamCreateResponse(error=refused))

    if waits:
        account.waiting_files.then(entry.files, settle)
    info = yield from showing_stream(entry, account.settings, account.now_ns)
    info.domain = ""  # answers to a create have none
    response = StreamCreateResponse(info=info, did_create=True)
    if waits and not written:
        shown.append(response)
        return None
    if written and written[0] is not None:
        raise errors.StreamCreateError(written[0])
    return response


def update(
    account: JetStreamAccount, request: StreamConfigRequest, name: str
) -> Steps[StreamUpdateResponse]:
    """STREAM.UPDATE."""
    config = stream_config.from_request(request)
    config = yield from stream_config.checking(
        config,
        pedantic=request.pedantic,
        find=account.config_of,
        caps=limits.stream_caps(account, config),
    )
    if request.name != name:
        raise errors.StreamMismatchError()
    entry = streams.update(account, config)
    info = yield from showing_stream(entry, account.settings, account.now_ns)
    return StreamUpdateResponse(info=info)


def info(
    account: JetStreamAccount, request: StreamInfoRequest, name: str
) -> Steps[StreamInfoResponse]:
    """STREAM.INFO."""
    entry = account.stream(name)
    total, offset = 0, max(request.offset, 0)
    subjects: dict[str, int] = {}
    deleted: list[int] = []
    if request.subjects_filter and is_valid(request.subjects_filter):
        total, subjects = yield from subjects_of(
            entry, request.subjects_filter, offset, SUBJECTS_LIMIT
        )
    if request.deleted_details:
        deleted = yield from deleted_sequences(entry)
    if account.streams.get(name) is not entry:  # deleted meanwhile
        entry = account.stream(name)
    found = yield from showing_stream(entry, account.settings, account.now_ns)
    found.cluster = leader(account.settings)
    found.state.deleted, found.state.subjects = deleted, subjects
    response = StreamInfoResponse(info=found)
    if total:
        response.total, response.offset, response.limit = total, offset, SUBJECTS_LIMIT
    return response


def names(account: JetStreamAccount, request: StreamNamesRequest) -> StreamNamesResponse:
    """STREAM.NAMES."""
    found, offline = _matching(account, request.subject), _offline(account, request.subject)
    if offline:
        found = sorted(found + offline)
    offset = min(max(request.offset, 0), len(found))
    page = found[offset : offset + NAMES_LIMIT]
    return StreamNamesResponse(
        total=len(found), offset=offset, limit=NAMES_LIMIT, streams=page or None
    )


def list_(account: JetStreamAccount, request: StreamListRequest) -> Steps[StreamListResponse]:
    """STREAM.LIST."""
    found = _matching(account, request.subject)
    offset = min(max(request.offset, 0), len(found))
    page: list[Any] = []
    for number, name in enumerate(found[offset : offset + LIST_LIMIT], 1):
        entry = account.streams.get(name)
        if entry is not None:  # not deleted meanwhile
            shown = yield from showing_stream(
                entry, account.settings, account.now_ns, versioned=False
            )
            page.append(Raw(encode(shown)))
        if number % LIST_STEP == 0:
            yield
    missing = _offline(account, request.subject)
    return StreamListResponse(
        total=len(found) + len(missing),
        offset=offset,
        limit=LIST_LIMIT,
        streams=page,
        missing=missing,
        offline={name: account.offline[name].reason for name in missing},
    )


def delete(account: JetStreamAccount, request: EmptyRequest, name: str) -> SuccessResponse:
    """STREAM.DELETE."""
    streams.delete(account, name)
    return SuccessResponse(success=True)


def purge(
    account: JetStreamAccount,
    request: StreamPurgeRequest,
    answer: Callable[[Response], None],
    name: str,
) -> StreamPurgeResponse | None:
    """STREAM.PURGE. The answer is sent when a crash cannot bring the messages back."""
    if request.seq and request.keep:
        raise errors.BadRequestError()
    entry = account.stream(name)
    if entry.config.sealed:
        raise errors.StreamSealedError()
    if entry.config.deny_purge:
        raise errors.StreamPurgeFailedError("stream purge not permitted")
    # above the highest sequence: remove everything, and let the stream take messages as before
    seq = request.seq if request.seq <= MAX_SEQUENCE else entry.core.log.last_seq + 1
    if seq == 1 or (request.filter and not is_valid(request.filter)):
        # below 1 there are no messages, and an invalid subject matches none
        return StreamPurgeResponse(success=True)
    try:
        if request.filter in ("", ">") and seq > entry.core.log.last_seq + 1:
            # like other servers: the named sequence becomes the next one
            entry.core.log.skip(seq)
            entry.core.log.fsync()
        purged = entry.core.purge(subject=request.filter, below=seq, keep=request.keep)
    except OSError as error:
        raise errors.StreamPurgeFailedError(error) from error
    # also without a removal here: earlier removals may not be on the disk yet
    entry.core.when_removed(lambda: answer(StreamPurgeResponse(success=True, purged=purged)))
    return None


def clustered_only(account: JetStreamAccount, request: Struct, name: str) -> Response:
    """The calls that move leaders and replicas, which a single server does not have (10010)."""
    raise errors.ClusterRequiredError()


def _offline(account: JetStreamAccount, subject: str) -> list[str]:
    """Return the offline streams, whose subjects are not known."""
    return [] if subject else sorted(account.offline)


def _matching(account: JetStreamAccount, subject: str) -> list[str]:
    """Return the names of the streams with a subject, sorted."""
    if not subject:
        return account.listening.names()
    if not is_valid(subject):
        return []
    return account.listening.of(subject)
