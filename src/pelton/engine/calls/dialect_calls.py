"""Answers requests in the dialects of 2019 and 2020 with the calls of today's API.

`api/dialects` has the translation; this module carries its conversations out. A client that may not
publish to the subject of a call gets the refusal in the dialect: a permission that denies a part of
the API denies it in each dialect.
"""

from collections.abc import Callable, Generator
from typing import Any

from msgspec import Struct

from pelton.api.calls import MsgGetResponse, Response
from pelton.api.dialects.configurations import DialectError
from pelton.api.dialects.requests import (
    Conversation,
    HasInterest,
    ServerLimits,
    Unacknowledged,
    converse,
    dialect_of_subject,
    forwarded,
    refusal,
    words,
)
from pelton.api.dialects.templates import TemplateCall
from pelton.api.errors import ApiError
from pelton.api.subjects import API_PREFIX
from pelton.core.broker.reactor import Connection
from pelton.core.broker.request_queue import Work
from pelton.core.protocol.subjects import subset
from pelton.engine.account.account import JetStreamAccount
from pelton.engine.account.advisories import ApiAudit
from pelton.engine.calls import direct_get
from pelton.engine.lifecycles.templates import Templates

Answer = Callable[
    [Connection | None, str, bytes, Callable[[Response], None]],
    Generator[None, None, Response | None],
]
Submit = Callable[[Connection | None, Work, int, Callable[[ApiError], None]], None]


class _Asked(Struct):
    """A request in progress."""

    source: Connection | None
    subject: str
    reply: str
    body: bytes
    conversation: Conversation
    shown: tuple[str, int] | None = None  # the stream and the sequence of a message in the answer


class DialectCalls:
    """Answers the requests of one account in the dialects."""

    def __init__(self, account: JetStreamAccount, answer: Answer, submit: Submit) -> None:
        """`answer(source, call, body, then)` answers one call of today's API, in steps; None: `then`
        gets the answer later. `submit(source, work, size, refuse)` carries out a request, or refuses it.
        """
        self._account = account
        self._answer = answer
        self._submit = submit
        account.templates = Templates(account, self._make)

    def take(self, source: Connection | None, subject: str, reply: str, body: bytes) -> bool:
        """Answer one request; False when no dialect has the subject."""
        todays = forwarded(subject, body)
        if todays is not None:
            if _denied(source, todays[0]):
                return True
            return self._account.router.publish_message(todays[0], todays[1], reply) > 0
        conversation = converse(subject, body)
        if conversation is None:
            return False
        asked = _Asked(source, subject, reply, body, conversation)
        size = len(subject) + len(reply) + len(body)
        self._submit(source, self._go_on(asked, None), size, self._refusing(asked))
        return True

    def _make(self, call: str, body: bytes) -> Response | None:
        """Carry out a call at once; None: its answer comes later."""
        late: list[Response] = []
        steps = self._answer(None, call, body, late.append)
        while True:
            try:
                next(steps)
            except StopIteration as end:
                made: Response | None = end.value
                break
        if made is None:
            self._account.waiting_files.commit()
        return made or next(iter(late), None)

    def _go_on(self, asked: _Asked, given: Any) -> Generator[None, None, None]:
        """Carry a conversation on with the answer to its last question."""
        account = self._account
        while True:
            try:
                wish = asked.conversation.send(given)
            except StopIteration as end:
                return self._finish(asked, end.value)
            if isinstance(wish, Unacknowledged):
                given = self._waits(wish)
                continue
            if isinstance(wish, TemplateCall):
                try:
                    given = self._template(asked, wish)
                except DialectError as error:
                    text = str(error)
                    return self._finish(asked, refusal(dialect_of_subject(asked.subject), text))
                continue
            if isinstance(wish, HasInterest):
                given = account.router.has_interest(wish.subject)
                continue
            if isinstance(wish, ServerLimits):
                given = account.settings.max_memory, account.settings.max_storage
                continue
            if _denied(asked.source, f"{API_PREFIX}.{wish.subject}"):
                text = "permissions violation"
                return self._finish(asked, refusal(dialect_of_subject(asked.subject), text))
            given = yield from self._answer(
                asked.source, wish.subject, wish.body, lambda late: self._go_on_later(asked, late)
            )
            if given is None:
                return None
            if isinstance(given, MsgGetResponse) and given.message is not None:
                asked.shown = wish.subject.rpartition(".")[2], given.message.seq

    def _go_on_later(self, asked: _Asked, late: Response) -> None:
        self._submit(None, self._go_on(asked, late), 0, self._refusing(asked))

    def _refusing(self, asked: _Asked) -> Callable[[ApiError], None]:
        def refuse(error: ApiError) -> None:
            dialect = dialect_of_subject(asked.subject)
            self._finish(asked, refusal(dialect, words(error.body(), dialect)))

        return refuse

    def _template(self, asked: _Asked, wish: TemplateCall) -> object:
        """The answer of the templates. DialectError: the request or the client's permissions do not allow it."""
        todays = {"create": "CREATE", "delete": "DELETE", "info": "INFO"}.get(wish.action, "NAMES")
        subject = ".".join(part for part in (API_PREFIX, "STREAM", todays, wish.name) if part)
        templates = self._account.templates
        if templates is None or _denied(asked.source, subject):
            raise DialectError("permissions violation")
        return templates.answer(wish)

    def _waits(self, wish: Unacknowledged) -> list[tuple[int, int, int]] | None:
        try:
            core = self._account.consumer(wish.stream, wish.consumer)[1].core
        except ApiError:
            return None
        return core.unacknowledged() + [(seq, 0, times) for seq, times in core.given_up()]

    def _finish(self, asked: _Asked, answer: bytes) -> None:
        """Count the answer, send it, and publish the audit advisory."""
        account = self._account
        account.api_total += 1
        account.api_errors += answer.startswith(b"-ERR")

        def publish() -> None:
            account.router.publish_message(asked.reply, answer)

        if asked.reply and asked.shown is not None:
            # a message is shown only when a crash cannot take it back
            answers = direct_get.answers_of(account.stream(asked.shown[0]))
            answers.when_visible(asked.shown[1], publish, len(answer))
        elif asked.reply:
            publish()
        if account.advisories.audited():
            account.caller = asked.source
            event = ApiAudit(
                server=account.settings.server_name,
                client=account.client_info(),
                subject=asked.subject,
                request=asked.body.decode("utf-8", "surrogateescape"),
                response=answer.decode("utf-8", "surrogateescape"),
            )
            account.caller = None
            account.advisories.api_call(event, account.now_ns)


def _denied(source: Connection | None, subject: str) -> bool:
    """Whether the client's permissions deny today's subject by name."""
    if source is None or source.permissions is None:
        return False
    return any(subset(subject, pattern) for pattern in source.permissions.publish_deny)
