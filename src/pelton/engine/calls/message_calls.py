"""Single messages: MSG.GET and MSG.DELETE, and how a request names a message.

Each function of the API is a row of the dispatch table.
"""

from collections.abc import Callable

from pelton.api import errors_generated as errors
from pelton.api.calls import (
    MsgDeleteRequest,
    MsgGetRequest,
    MsgGetResponse,
    Response,
    StoredMsg,
    SuccessResponse,
)
from pelton.api.errors import ApiError
from pelton.core.log import queries
from pelton.core.log.log import Log
from pelton.engine.account.account import JetStreamAccount
from pelton.engine.account.catalog import StreamEntry
from pelton.engine.base.subject_checks import is_valid

SUBJECTS_MOST = 1024
"""The number of subjects that one direct get may ask for."""


def get(account: JetStreamAccount, request: MsgGetRequest, name: str) -> MsgGetResponse:
    """STREAM.MSG.GET."""
    if request.batch > 0 or request.max_bytes > 0 or conflicting(request) or not selects(request):
        raise errors.BadRequestError()
    log = account.stream(name).core.log
    message = None
    while message is None and (seq := find(log, request)):
        message = log.get(seq)
        if request.seq and not request.next_by_subj:
            break
    if message is None:
        raise errors.NoMessageFoundError()
    return MsgGetResponse(
        message=StoredMsg(
            subject=message.subject,
            seq=message.seq,
            hdrs=b"" if request.no_hdr else message.headers,
            data=message.payload,
            time=message.ts_ns,
        )
    )


def delete(
    account: JetStreamAccount,
    request: MsgDeleteRequest,
    answer: Callable[[Response], None],
    name: str,
) -> SuccessResponse | None:
    """STREAM.MSG.DELETE. The answer is sent when a crash cannot bring the message back.

    A message that does not exist does not count as an error in the account's statistics.
    """
    entry = account.stream(name)
    if entry.config.sealed:
        raise errors.StreamSealedError()
    if entry.config.deny_delete:
        raise errors.StreamMsgDeleteFailedError("message delete not permitted")
    try:
        removed = entry.core.delete_message(request.seq, not request.no_erase)
    except OSError as error:
        return SuccessResponse(error=errors.StreamMsgDeleteFailedError(error).body())
    if not removed:
        return SuccessResponse(error=_not_removed(entry, request.seq).body())
    entry.core.when_removed(lambda: answer(SuccessResponse(success=True)))
    return None


def selects(request: MsgGetRequest) -> bool:
    """Return whether the request names a message."""
    return bool(
        request.seq
        or request.last_by_subj
        or request.next_by_subj
        or request.start_time is not None
    )


def conflicting(request: MsgGetRequest) -> bool:
    """Return whether the request names a message in two ways that exclude each other."""
    by_time = request.start_time is not None
    if request.last_by_subj:
        return bool(request.seq or by_time or request.next_by_subj)
    return bool(request.seq and by_time)


def find(log: Log, request: MsgGetRequest) -> int:
    """Return the sequence of the message that a request names; 0: there is none."""
    if request.last_by_subj:
        if request.last_by_subj == ">":
            # the last message of the stream, if it is still stored
            return log.last_seq if log.size_of(log.last_seq) else 0
        return (
            queries.last_seq_of(log, request.last_by_subj) if is_valid(request.last_by_subj) else 0
        )
    start = request.seq
    if request.start_time is not None:
        start = log.at_time(request.start_time)
    if request.next_by_subj:
        return (
            queries.next_seq(log, request.next_by_subj, start)
            if is_valid(request.next_by_subj)
            else 0
        )
    return start if start <= log.last_seq and log.size_of(start) else 0


def _not_removed(entry: StreamEntry, seq: int) -> ApiError:
    log = entry.core.log
    if entry.config.storage == "file":
        if seq > log.last_seq:
            return errors.StreamMsgDeleteFailedError("stream store EOF")
        if seq < log.first_seq or not log.msgs:
            return errors.StreamMsgDeleteFailedError("no message found")
    return errors.SequenceNotFoundError(seq)
