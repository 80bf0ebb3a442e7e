"""Single messages: MSG.GET and MSG.DELETE, and direct get, which answers with the message itself.

Each function of the API is a row of the dispatch table; `direct_get` makes its own answer: headers
and payload, errors as a status line.
"""

from penstock.api import errors_generated as errors
from penstock.api.calls import (
    MsgDeleteRequest,
    MsgGetRequest,
    MsgGetResponse,
    StoredMsg,
    SuccessResponse,
)
from penstock.api.codec import JsonError, decode_request
from penstock.api.times import format_time
from penstock.core.log import Log, StoredMessage
from penstock.engine.account import Account
from penstock.engine.entries import StreamEntry
from penstock.engine.subject_rules import is_valid

_HEADER_LINE = b"NATS/1.0\r\n"


def get(account: Account, request: MsgGetRequest, name: str) -> MsgGetResponse:
    """STREAM.MSG.GET."""
    entry = account.stream(name)
    batched = request.batch or request.max_bytes or request.multi_last
    if batched or _conflicting(request) or not _selects(request):
        raise errors.BadRequestError()
    message = _find(entry.core.log, request)
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


def delete(account: Account, request: MsgDeleteRequest, name: str) -> SuccessResponse:
    """STREAM.MSG.DELETE."""
    entry = account.stream(name)
    if entry.config.sealed:
        raise errors.StreamSealedError()
    if entry.config.deny_delete:
        raise errors.StreamMsgDeleteFailedError("message delete not permitted")
    try:
        removed = entry.core.delete_message(request.seq, not request.no_erase)
    except OSError as error:
        raise errors.StreamMsgDeleteFailedError(error) from error
    if not removed:
        raise _not_removed(entry, request.seq)
    return SuccessResponse(success=True)


def direct_get(entry: StreamEntry, body: bytes, subject: str) -> tuple[bytes, bytes]:
    """DIRECT.GET.<stream>[.<subject>]: headers and payload of the answer."""
    try:
        request = decode_request(MsgGetRequest, body, strict=False)
    except JsonError:
        return _status("408 Malformed Request")
    if subject:
        if _selects(request) or request.batch or request.multi_last:
            return _status("408 Bad Request")
        request.last_by_subj = subject
    if request.batch or request.max_bytes or request.multi_last:
        return _status("408 Bad Request - batched direct get is not supported")
    if not _selects(request):
        return _status("408 Empty Request")
    if _conflicting(request):
        return _status("408 Bad Request")
    message = _find(entry.core.log, request)
    if message is None:
        return _status("404 Message Not Found")
    if request.no_hdr:
        return b"", message.payload
    return _direct_headers(entry.config.name, message), message.payload


def _selects(request: MsgGetRequest) -> bool:
    return bool(
        request.seq
        or request.last_by_subj
        or request.next_by_subj
        or request.start_time is not None
    )


def _conflicting(request: MsgGetRequest) -> bool:
    by_time = request.start_time is not None
    if request.last_by_subj:
        return bool(request.seq or by_time or request.next_by_subj)
    return bool(request.seq and by_time)


def _find(log: Log, request: MsgGetRequest) -> StoredMessage | None:
    if request.last_by_subj:
        return log.last_of(request.last_by_subj) if is_valid(request.last_by_subj) else None
    start = request.seq or 1
    if request.start_time is not None:
        start = log.at_time(request.start_time)
    if request.next_by_subj:
        return log.next_of(request.next_by_subj, start) if is_valid(request.next_by_subj) else None
    return log.next_of(">", start) if request.start_time is not None else log.get(start)


def _not_removed(entry: StreamEntry, seq: int) -> Exception:
    log = entry.core.log
    if entry.config.storage == "file":
        if seq > log.last_seq:
            return errors.StreamMsgDeleteFailedError("stream store EOF")
        if seq < log.first_seq or not log.msgs:
            return errors.StreamMsgDeleteFailedError("no message found")
    return errors.SequenceNotFoundError(seq)


def _direct_headers(stream: str, message: StoredMessage) -> bytes:
    block = message.headers.removesuffix(b"\r\n") if message.headers else _HEADER_LINE
    added = (
        f"Nats-Stream: {stream}\r\n"
        f"Nats-Subject: {message.subject}\r\n"
        f"Nats-Sequence: {message.seq}\r\n"
        f"Nats-Time-Stamp: {format_time(message.ts_ns)}\r\n\r\n"
    )
    return block + added.encode("utf-8", "surrogateescape")


def _status(line: str) -> tuple[bytes, bytes]:
    return f"NATS/1.0 {line}\r\n\r\n".encode(), b""
