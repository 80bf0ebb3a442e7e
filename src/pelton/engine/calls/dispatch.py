"""Answering `$JS.API.` requests: find the call in the table, read its request, send its response.

    subject ──► row of the table ──► RequestQueue ──► read, handler, response     a generator: it yields between steps

The queue carries a request out at once, or in later turns when there are many or the answer is long. The response goes
out when the handler has it, or when the disk has what it tells.
"""

import re
from collections.abc import Callable, Generator
from typing import Any

from msgspec import Struct

from pelton.api import errors_generated as errors
from pelton.api.calls import TYPE_PREFIX, MsgGetResponse, Response
from pelton.api.codec import JsonError, decode_request, encode
from pelton.api.errors import ApiError
from pelton.api.subjects import API_PREFIX
from pelton.api.whole import decode_whole
from pelton.core.broker.reactor import Connection
from pelton.core.broker.request_queue import RequestQueue, Work
from pelton.engine.account.account import JetStreamAccount
from pelton.engine.account.advisories import ApiAudit
from pelton.engine.account.catalog import StreamEntry
from pelton.engine.base.settings import SECOND
from pelton.engine.base.steps import Steps, finish
from pelton.engine.calls import direct_get
from pelton.engine.calls.api_calls import CALLS, Body, Call
from pelton.engine.calls.dialect_calls import DialectCalls

_NO_MEMBERS = re.compile(rb"[ \t\r\n]*\{[ \t\r\n]*\}[ \t\r\n]*")
_REQUIRED_LEVEL = re.compile(rb"\r\nNats-Required-Api-Level:[ \t]*([^\r\n]*)\r\n")
_LEVEL_DIGITS_MAX = 9
_LONG = 16_384  # bytes of a body that is read in a step of its own
_QUIET_NS = 60_000_000_000
_API = f"{API_PREFIX}."
_REFUSED = "too many requests"  # not a pattern
_DIRECT = f"{API_PREFIX}.DIRECT.GET"  # the streams themselves serve the subjects with this prefix


class _Asked(Struct, frozen=True):
    """A request in progress."""

    call: Call
    names: list[str]
    source: Connection | None
    subject: str
    reply: str
    body: bytes
    # gets a late response, which is not sent: the request is a question of this server, and not counted
    then: Callable[[Response], None] | None = None


class Dispatcher:
    """Answers the API requests of one account: `take` gets each request."""

    def __init__(self, account: JetStreamAccount, requests: RequestQueue) -> None:
        """Start to serve the account's API subjects. `requests` has those of all accounts."""
        self._account = account
        self._requests = requests
        account.waiting_files.more = lambda: requests.waiting(account)
        self._strict = account.settings.strict
        # pattern of a call -> no report of its disk errors before this time
        self._quiet_until_ns: dict[str, int] = {}
        self._refused = 0  # requests since the last advisory about them
        self._left = False  # the account has no JetStream any more
        self._rows: dict[str, list[tuple[int, bool, Call]]] = {}
        for call in CALLS:
            tokens = call.pattern.split(".")
            head = [token for token in tokens if token not in ("*", ">")]
            rest = tokens[-1] == ">"
            wildcards = len(tokens) - len(head) - rest
            self._rows.setdefault(".".join(head), []).append((wildcards, rest, call))
        self._dialects = DialectCalls(account, self.answer, self._submit)
        account.carry_out = self._carry_out
        account.serve(self.take)

    def take(
        self, source: Connection | None, subject: str, reply: str, headers: bytes, body: bytes
    ) -> bool:
        """Answer a message under `$JS.API.`, or of a dialect; False: no call has its subject."""
        if not subject.startswith(_API):
            return self._dialects.take(source, subject, reply, body)
        if subject.startswith(_DIRECT):
            return self._direct(subject, reply, headers, body)
        tokens = subject.removeprefix(f"{API_PREFIX}.").split(".")
        if "" in tokens:
            return False
        found = self._find(tokens)
        if found is None:
            return True
        call, names = found
        if self._account.on_request is not None:
            self._account.on_request(source, subject, headers, body)
        if call.replied and not reply:
            return True
        asked = _Asked(call, names, source, subject, reply, body)
        size = len(subject) + len(reply) + len(headers) + len(body)
        self._submit(source, self._answer(asked, headers), size, self._refusing(asked))
        return True

    def leave(self) -> None:
        """The account loses JetStream: refuse the requests that wait (10039), each in its turn."""
        self._left = True

    def close(self) -> None:
        """Give up the requests that wait, without answers: the server stops."""
        self._requests.drop(self._account)

    def _refusing(self, asked: _Asked) -> Callable[[ApiError], None]:
        return lambda error: self._later(asked, asked.call.response(error=error.body()), b"")

    def _submit(
        self, source: Connection | None, work: Work, size: int, refuse: Callable[[ApiError], None]
    ) -> None:
        """Carry out the work of a request for a client, or for someone else. `refuse` answers it when
        too many wait, or when the account loses JetStream before.
        """
        account = self._account
        steps = self._as_caller(source, work, refuse)
        if not self._requests.submit(account, source, steps, size):
            self._refused += 1
            if account.now_ns >= self._quiet_until_ns.get(_REFUSED, 0):
                self._quiet_until_ns[_REFUSED] = account.now_ns + SECOND
                account.report(f"account {account.name}: API request queue is full")
                account.advisories.api_limit_reached(
                    account.settings.server_name, self._refused, account.now_ns
                )
                self._refused = 0
            refuse(errors.InsufficientResourcesError())

    def _carry_out(self, work: Work) -> None:
        if not self._requests.submit(self._account, None, work):  # too many wait
            finish(work)

    def _as_caller(
        self, source: Connection | None, work: Work, refuse: Callable[[ApiError], None]
    ) -> Work:
        """The work, with the client as the account's caller during each step."""
        account = self._account
        while not self._left:
            account.caller = source
            try:
                next(work)
            except StopIteration:
                return
            finally:
                account.caller = None
            yield
        work.close()
        refuse(errors.NotEnabledForAccountError())

    def _answer(self, asked: _Asked, headers: bytes) -> Steps[None]:
        """Answer a request, or let it wait."""
        if self._waits(
            asked,
            lambda: self._submit(None, self._answer(asked, headers), 0, self._refusing(asked)),
        ):
            return
        response, answer_headers = yield from self._response(asked, headers)
        if response is not None:
            self._account.waiting_files.commit()  # answers in the order of the requests
            self._finish(asked, response, answer_headers)

    def _waits(self, asked: _Asked, again: Callable[[], object]) -> bool:
        """Whether a request for a message has to wait, because many answers already wait for the disk."""
        account = self._account
        present = account.streams.get(asked.names[0]) if asked.names else None
        # what the request shows or changes is on the disk before
        if not asked.call.grouped or (present and account.waiting_files.waits(present.files)):
            account.waiting_files.commit()
        if asked.call.response is not MsgGetResponse:
            return False
        entry = account.streams.get(asked.names[0])
        if entry is None or not (answers := direct_get.answers_of(entry)).is_full():
            return False
        answers.when_visible(answers.stream.log.last_seq, again)
        return True

    def _find(self, tokens: list[str]) -> tuple[Call, list[str]] | None:
        for length in (3, 2, 1):
            rows = self._rows.get(".".join(tokens[:length])) if len(tokens) >= length else None
            for wildcards, rest, call in rows or ():
                names = tokens[length:]
                if len(names) == wildcards and not rest:
                    return call, names
                if rest and len(names) > wildcards:
                    return call, [*names[:wildcards], ".".join(names[wildcards:])]
        return None

    def _finish(self, asked: _Asked, response: Response, headers: bytes = b"") -> None:
        """Count the answer, send it, and publish the audit advisory."""
        account, call = self._account, asked.call
        told = call.counted or response.error is not None
        account.api_total += told
        response.type = TYPE_PREFIX + call.type
        answer = encode(response)

        def publish() -> None:
            account.router.publish_message(asked.reply, answer, headers=headers)

        if asked.reply and isinstance(response, MsgGetResponse) and response.message is not None:
            # a message is shown only when a crash cannot take it back
            answers = direct_get.answers_of(account.stream(asked.names[0]))
            answers.when_visible(response.message.seq, publish, len(answer))
        elif asked.reply:
            publish()
        if told and account.advisories.audited():
            event = ApiAudit(
                server=account.settings.server_name,
                client=account.client_info(),
                subject=asked.subject,
                request=asked.body.decode("utf-8", "surrogateescape"),
                response=answer.decode("utf-8", "surrogateescape"),
            )
            account.advisories.api_call(event, account.now_ns)

    def answer(
        self, source: Connection | None, call: str, body: bytes, then: Callable[[Response], None]
    ) -> Steps[Response | None]:
        """Answer the request of a call, the subject behind `$JS.API.`, without sending the answer;
        None: `then` gets it later.
        """
        found = self._find(call.split("."))
        if found is None:
            return Response(error=errors.BadRequestError().body())
        row, names = found
        asked = _Asked(row, names, source, "", "", body, then)

        def again() -> Steps[None]:
            late = yield from self.answer(source, call, body, then)
            if late is not None:
                then(late)

        if self._waits(asked, lambda: self._submit(None, again(), 0, self._refusing(asked))):
            return None
        response, _ = yield from self._response(asked, b"")
        return response

    def _later(self, asked: _Asked, response: Response, headers: bytes) -> None:
        if asked.then is not None:
            asked.then(response)
            return
        self._account.caller = asked.source
        self._account.api_errors += response.error is not None
        self._finish(asked, response, b"" if response.error is not None else headers)
        self._account.caller = None

    def _response(self, asked: _Asked, headers: bytes) -> Steps[tuple[Response | None, bytes]]:
        """Return the answer (None: there is none yet) and its headers.

        An error that the handler raises counts in the account's statistics; an error response that
        it returns does not.
        """
        call, names = asked.call, asked.names
        account = self._account
        try:
            self._check_level(headers)
            request = self._request(call, asked.body)
            if len(asked.body) > _LONG:
                yield
            identity = call.identity(account, request, headers, names[0]) if call.identity else b""
            arguments: list[Any] = [account, request]
            if call.later:
                arguments.append(lambda late: self._later(asked, late, identity))
            made = call.handler(*arguments, *names)
            if isinstance(made, Generator):
                made = yield from made
            return made, identity
        except ApiError as error:
            answer = error.body()
        except OSError as error:
            # a disk error that the handler did not turn into an API error
            now_ns = account.now_ns
            if now_ns >= self._quiet_until_ns.get(call.pattern, 0):
                self._quiet_until_ns[call.pattern] = now_ns + _QUIET_NS
                account.report(f"{call.pattern}: {error}")
            answer = errors.StreamGeneralError(error.strerror or error).body()
        except Exception as error:
            # a fault of the server: answer the client, report it, and go on
            account.report(f"{call.pattern}: internal error: {error!r}")
            answer = errors.StreamGeneralError("internal error").body()
        account.api_errors += asked.then is None
        return call.response(error=answer), b""

    def _request(self, call: Call, body: bytes) -> Any:
        if call.body is Body.IGNORED:
            return call.request()
        if call.body is Body.EMPTY:
            if body and not _NO_MEMBERS.fullmatch(body):
                raise errors.NotEmptyRequestError()
            return call.request()
        if call.body is Body.REQUIRED and (not body or _NO_MEMBERS.fullmatch(body)):
            raise errors.BadRequestError()
        if call.body is Body.OPTIONAL and body.lstrip(b" \t\r\n")[:1] not in (b"{", b"["):
            return call.request()
        if call.body is Body.LENIENT and not body:
            return call.request()
        try:
            if call.body in (Body.LENIENT, Body.WHOLE):
                return decode_whole(call.request, body)
            return decode_request(call.request, body, strict=self._strict, bounded=True)
        except JsonError as error:
            raise errors.InvalidJSONError(error) from None

    def _check_level(self, headers: bytes) -> None:
        match = _REQUIRED_LEVEL.search(headers) if headers else None
        if match is None:
            return
        text = match[1].strip()
        if not text:
            return
        digits = text[1:] if text[:1] in (b"+", b"-") else text
        if (
            not digits.isdigit()
            or len(digits) > _LEVEL_DIGITS_MAX
            or int(text) > self._account.settings.api_level
        ):
            raise errors.RequiredApiLevelError()

    def _direct(self, subject: str, reply: str, headers: bytes, body: bytes) -> bool:
        dot, name, wanted = (*subject.removeprefix(_DIRECT).split(".", 2), "", "")[:3]
        entry = None if dot else self._account.direct_server(name)
        if entry is None:
            return False
        if not reply:
            return True
        try:
            self._check_level(headers)
        except ApiError:
            direct_get.answers_of(entry).status(reply, direct_get.TOO_NEW)
            return True
        self._get_directly(entry, wanted, body, reply)
        return True

    def _get_directly(self, entry: StreamEntry, wanted: str, body: bytes, reply: str) -> None:
        """Answer a direct get; when many answers wait for the disk already, the request waits instead."""
        answers = direct_get.answers_of(entry)
        if answers.is_full():
            last = answers.stream.log.last_seq
            answers.when_visible(last, lambda: self._get_directly(entry, wanted, body, reply))
            return
        try:
            if wanted:
                direct_get.by_subject(entry, body, wanted, reply)
            else:
                direct_get.by_request(entry, body, reply, self._account.reactor.max_pending)
        except OSError as error:
            answers.failed(reply, error.strerror or str(error))
