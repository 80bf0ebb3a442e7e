"""Direct get: parses requests and checks them; `core/stream/direct_get` makes the answers.

Errors are status lines and not JSON, as in the protocol. `JetStreamAccount.direct_server` decides
which stream serves a request.
"""

from pelton.api.calls import MsgGetRequest
from pelton.api.codec import JsonError
from pelton.api.whole import decode_whole
from pelton.core.log import queries
from pelton.core.stream.direct_get import Answers
from pelton.engine.account.catalog import StreamEntry
from pelton.engine.base.settings import MAX_SUBJECTS
from pelton.engine.base.subject_checks import is_valid
from pelton.engine.calls.message_calls import SUBJECTS_MOST, conflicting, find, selects

_MALFORMED = "408 Malformed Request"
_EMPTY = "408 Empty Request"
_BAD = "408 Bad Request"
_NOT_FOUND = "404 Message Not Found"
_NO_RESULTS = "404 No Results"
_TOO_MANY = "413 Too Many Results"
TOO_NEW = "412 Required Api Level"
_NOBODY = "."  # a subject that no message has


def by_request(entry: StreamEntry, body: bytes, reply: str, max_pending: int) -> None:
    """DIRECT.GET.<stream>: one message, a batch, or the last of each of several subjects."""
    answers = answers_of(entry)
    if not body:
        return answers.status(reply, _EMPTY)
    try:
        request = decode_whole(MsgGetRequest, body)
    except JsonError:
        return answers.status(reply, _MALFORMED)
    if not (selects(request) or request.multi_last):
        return answers.status(reply, _EMPTY)
    if _conflicting(request):
        return answers.status(reply, _BAD)
    if request.multi_last:
        return _last_of_each(answers, request, reply, max_pending)
    return _messages(answers, request, reply, max_pending)


def by_subject(entry: StreamEntry, body: bytes, subject: str, reply: str) -> None:
    """DIRECT.GET.<stream>.<subject>: the last message of the subject. The body may only ask for no
    headers.
    """
    answers = answers_of(entry)
    try:
        request = decode_whole(MsgGetRequest, body) if body else MsgGetRequest()
    except JsonError:
        return answers.status(reply, _MALFORMED)
    by_time = request.up_to_seq or request.up_to_time is not None
    if selects(request) or request.multi_last or request.batch or by_time:
        return answers.status(reply, _BAD)
    request.last_by_subj = subject
    return _messages(answers, request, reply, 0)


def answers_of(entry: StreamEntry) -> Answers:
    """Return the object that answers direct gets of a stream. The first call creates it."""
    if entry.answers is None:
        entry.answers = Answers(entry.core)
    return entry.answers


def _conflicting(request: MsgGetRequest) -> bool:
    last, each = request.last_by_subj, request.multi_last
    return bool(
        conflicting(request)
        or (last and (request.batch > 0 or each))
        or (request.next_by_subj and each)
        or (request.up_to_seq and request.up_to_time is not None)
    )


def _messages(answers: Answers, request: MsgGetRequest, reply: str, max_pending: int) -> None:
    if not request.batch:
        while seq := find(answers.stream.log, request):
            if answers.message(reply, seq, request.no_hdr):
                return None
            if request.seq and not request.next_by_subj:
                break
        return answers.status(reply, _NOT_FOUND)
    log = answers.stream.log
    start = request.seq if request.start_time is None else log.at_time(request.start_time)
    pattern = request.next_by_subj or ">"
    if not is_valid(pattern):
        pattern = _NOBODY
    if not answers.batch(
        reply,
        pattern,
        start,
        request.batch,
        request.max_bytes or max_pending,
        request.no_hdr,
    ):
        return answers.status(reply, _NOT_FOUND)
    return None


def _last_of_each(answers: Answers, request: MsgGetRequest, reply: str, max_pending: int) -> None:
    log = answers.stream.log
    up_to = request.up_to_seq or log.last_seq
    if up_to > log.last_seq and not log.memory:
        # the protocol: a file store has no sequence above its last
        return answers.status(reply, _NO_RESULTS)
    if request.up_to_time is not None:
        up_to = log.at_time(request.up_to_time)
        if up_to <= log.first_seq:
            return answers.status(reply, _NO_RESULTS)
        up_to -= 1
    if len(request.multi_last) > MAX_SUBJECTS:
        return answers.status(reply, _TOO_MANY)
    patterns = [pattern for pattern in request.multi_last if is_valid(pattern)]
    found = queries.last_of_each(log, patterns, up_to, SUBJECTS_MOST)
    if found is None:
        return answers.status(reply, _TOO_MANY)
    if not found:
        return answers.status(reply, _NO_RESULTS)
    answers.each(
        reply,
        found,
        request.seq,
        max(request.batch, 0),
        request.max_bytes or max_pending,
        up_to,
    )
    return None
