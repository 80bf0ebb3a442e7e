"""Requests with outstanding answers: one answer, or many; and reply subjects that nobody can guess.

Whoever answers a request sees its reply subject. If the next ones followed from it, that program could
answer them, too: forge an ack for a message that no stream has stored. So each reply subject contains
96 bits that its sender alone knows: drawn at random, or computed with a secret key. Does not draw itself:
callers pass the source of randomness in.
"""

from __future__ import annotations

from base64 import urlsafe_b64encode
from collections import deque
from contextlib import suppress
from hashlib import blake2b
from typing import TYPE_CHECKING, Any, NamedTuple

from pelton.errors import (
    ConnectionClosedError,
    ConnectionLostError,
    NoRespondersError,
    OutputFullError,
    PeltonError,
    PeltonTimeoutError,
    PermissionsViolationError,
)

from ..base.mailbox import Interest, Mailbox

if TYPE_CHECKING:
    from collections.abc import Callable

    from ..base.message import BaseMessage
    from .session import Session

NO_RESPONDERS = 503


class Sent:
    """How often a request was sent that may be sent again."""

    __slots__ = ("times",)

    def __init__(self) -> None:
        """Not yet."""
        self.times = 0


class Once(NamedTuple):
    """What makes it safe to send a message again: its id, and what tells its first copy from another message."""

    msg_id: str
    stream: str | None = None
    last_seq: int | None = None
    last_subject_seq: int | None = None
    subject: str = ""
    """Under which it is stored, when that is not the subject it is published to."""


class Question(Mailbox):
    """A request with an outstanding answer; made by ``ask``."""

    def __init__(self, subject: str, inbox: str) -> None:
        """``inbox``: the subject of the answer."""
        self.subject = subject
        self.inbox = inbox
        self._interest: Interest | None = None
        """The subscription for the answer, when it is not shared."""
        self.answer: BaseMessage | None = None
        self.error: PeltonError | None = None
        """Why no answer will come."""

    def is_over(self) -> bool:
        """Whether the wait is over."""
        return self.answer is not None or self.error is not None

    def outcome(self, seconds: float) -> Any:
        """The answer after a wait of ``seconds``; raises its error, or the reason why there is
        none.
        """
        answer = self.answer
        if answer is None:
            if self.error is not None:
                raise self.error
            raise PeltonTimeoutError(f"no answer from {self.subject!r} in {seconds} s")
        if answer.raw_headers and answer.status == NO_RESPONDERS:
            raise NoRespondersError(self.subject)
        return answer

    def _on_lost(self, error: PeltonError) -> None:
        """The connection broke after the request was sent, or the client was closed."""
        # ConnectionLostError is a ConnectionClosedError as well, and needs the subject in its text.
        if not isinstance(error, ConnectionLostError) and isinstance(error, ConnectionClosedError):
            self.error = error
        else:
            self.error = ConnectionLostError(f"no answer from {self.subject!r}: {error}")
        self._stir()

    def _on_refused(self, complaint: PermissionsViolationError) -> None:
        """Fail when the server does not permit the request, or the subscription for the answer."""
        # The server names the subject as it was given: for a shared inbox that is the pattern. Quotes keep
        # a.b from being found in a.b.c.
        own = self._interest is not None
        inbox = self.inbox if own else f"{self.inbox.rpartition('.')[0]}.*"
        if f'"{self.subject}"' in complaint.text or f'"{inbox}"' in complaint.text:
            self.error = complaint
            self._stir()


class Answers:
    """The owner of the inbox that all requests of a client share."""

    def __init__(self, client: Session, questions: dict[str, Question]) -> None:
        """``questions``: the requests by the subject of their answer."""
        self.client = client
        self._interest: Interest
        self._questions = questions

    def _on_message(self, message: BaseMessage) -> None:
        """An answer arrived."""
        question = self._questions.get(message.subject)
        # A repeated request may get two answers: the first one counts.
        if question is not None and question.answer is None:
            question.answer = message
            if question._waiting:
                question._stir()

    def _on_end(self) -> None:
        """The client is closed; the requests are told separately."""


class Requests:
    """The outstanding requests of one client, and the inbox that their answers share."""

    def __init__(self, client: Session) -> None:
        """No request yet; the first one subscribes to the inbox."""
        self.outstanding: dict[str, Question] = {}
        """The requests by the subject of their answer."""
        self._client = client
        self._inbox = ""

    def ask(self, subject: str, data: bytes, block: bytes) -> Question:
        """Queue a request with the header block ``block``. ``forget`` must follow."""
        client = self._client
        if not client.options.shared_inbox:
            return self._ask_alone(subject, data, block)
        if not self._inbox:
            self._inbox = client.new_inbox()
            owner = Answers(client, self.outstanding)
            owner._interest = client._connection.subscribe(f"{self._inbox}.*", owner=owner)
        question = Question(subject, f"{self._inbox}.{client._tokens.next()}")
        # Published first: if that raises, no question is left behind.
        client._connection.publish(subject, data, question.inbox, block, sound_reply=True)
        self.outstanding[question.inbox] = question
        return question

    def repeat(self, question: Question, data: bytes, block: bytes) -> None:
        """Queue the same request once more: the first answer counts, to whichever of the two."""
        if not question.is_over():
            connection = self._client._connection
            with suppress(OutputFullError):  # the first one is on its way
                connection.publish(question.subject, data, question.inbox, block, sound_reply=True)

    def _ask_alone(self, subject: str, data: bytes, block: bytes) -> Question:
        """Ask with a subscription for this one answer."""
        client = self._client
        question = Question(subject, client.new_inbox())
        owner = Answers(client, self.outstanding)
        owner._interest = client._connection.subscribe(question.inbox, owner=owner)
        try:
            # Sent before the request: the answer itself then ends the subscription at the server.
            client._connection.unsubscribe(owner._interest, 1)
            client._connection.publish(subject, data, question.inbox, block, sound_reply=True)
        except BaseException:
            client._connection.unsubscribe(owner._interest)
            raise
        question._interest = owner._interest
        self.outstanding[question.inbox] = question
        return question

    def forget(self, question: Question) -> None:
        """No caller waits for the answer any more."""
        # A late answer finds no question and is dropped.
        self.outstanding.pop(question.inbox, None)
        if question._interest is not None and question.answer is None:
            self._client._release(question._interest)

    def _on_refused(self, complaint: PermissionsViolationError) -> None:
        """The server does not permit an operation: tell the requests that may need it."""
        for each in list(self.outstanding.values()):
            each._on_refused(complaint)
        if self._inbox and f'"{self._inbox}.*"' in complaint.text:
            self._inbox = ""  # the next request subscribes again, and is refused again


class Gathered(Mailbox):
    """The answers to one request, and the owner of their subscription."""

    def __init__(self, subject: str, inbox: str) -> None:
        """``inbox``: the subject of the answers."""
        self.subject = subject
        self.inbox = inbox
        self._interest: Interest
        self._queue: deque[BaseMessage] = deque()
        self._error: PeltonError | None = None
        self._taken = 0

    def _on_message(self, message: BaseMessage) -> None:
        """An answer arrived."""
        self._queue.append(message)
        self._stir()

    def _on_end(self) -> None:
        """The client is closed; ``lost`` says so."""

    def _on_lost(self, error: PeltonError) -> None:
        """The connection broke, so answers may be missing."""
        known = isinstance(error, ConnectionClosedError)
        self._error = (
            error if known else ConnectionLostError(f"no answer from {self.subject!r}: {error}")
        )
        self._stir()

    def _on_refused(self, complaint: PermissionsViolationError) -> None:
        """Fail when the server does not permit the request, or the subscription for the answers."""
        if f'"{self.subject}"' in complaint.text or f'"{self.inbox}"' in complaint.text:
            self._error = complaint
            self._stir()

    def _has_news(self) -> bool:
        """Whether there is an answer, or none will come."""
        return bool(self._queue) or self._error is not None

    def take(self) -> Any:
        """The next answer, None when nobody answers any more; raises why no answer will come."""
        if not self._queue:
            assert self._error is not None
            raise self._error
        message = self._queue.popleft()
        # A service may send a status of its own with a payload; the server's 503 is empty.
        if message.status == NO_RESPONDERS and not message.data:
            if not self._taken:
                raise NoRespondersError(self.subject)
            return None
        self._taken += 1
        return message


def is_end(message: Any, sentinel: Callable[[Any], bool] | bool) -> bool:
    """Whether this answer says that no other one follows."""
    if callable(sentinel):
        return sentinel(message)
    return sentinel and not message.data


TOKEN_BYTES = 12
TOKEN_LENGTH = TOKEN_BYTES * 4 // 3
BLOCK_TOKENS = 256
"""Tokens that are drawn at once: a system call for each would cost ten times as much."""


class Tokens:
    """Random texts of 16 letters, digits, ``-`` and ``_``. Safe for several threads."""

    def __init__(self, randbytes: Callable[[int], bytes]) -> None:
        """``randbytes(n)`` returns n unpredictable bytes, such as ``random.SystemRandom().randbytes``."""
        self._randbytes = randbytes
        self._drawn: list[str] = []

    def next(self) -> str:
        """A token that was never returned before."""
        try:
            # Atomic. Two threads that find the list empty draw twice, which does no harm.
            return self._drawn.pop()
        except IndexError:
            text = self.block().decode()
            first, *rest = (
                text[at : at + TOKEN_LENGTH] for at in range(0, len(text), TOKEN_LENGTH)
            )
            self._drawn += rest
            return first

    def block(self) -> bytes:
        """Many tokens, one after the other, for compiled code that cuts them."""
        return urlsafe_b64encode(self._randbytes(BLOCK_TOKENS * TOKEN_BYTES))


class Replies:
    """Numbered reply subjects below one inbox: ``<inbox>.<number>-<code>``.

    The code depends on the number and on a key, so one subject does not help to make another one, and
    nothing has to be stored to recognise a subject that this object made.
    """

    def __init__(self, inbox: str, key: bytes) -> None:
        """``key``: up to 64 unpredictable bytes, used for nothing else."""
        self.prefix = f"{inbox}."
        """The beginning of every subject."""
        self.pattern = f"{inbox}.*"
        """What to subscribe to."""
        self._hash = blake2b(key=key, digest_size=TOKEN_BYTES)

    def subject(self, number: int) -> str:
        """The reply subject with this number, which is 1 or more."""
        code = self._hash.copy()
        code.update(b"%d" % number)
        return f"{self.prefix}{number}-{code.hexdigest()}"

    def number_of(self, subject: str) -> int:
        """The number in a subject that ``subject`` made; 0 for any other subject."""
        number, _, code = subject.removeprefix(self.prefix).partition("-")
        # isdigit is also true for digits of other scripts, which int() would accept.
        known = number.isascii() and number.isdigit() and code == self._code(number)
        return int(number) if known else 0

    def _code(self, number: str) -> str:
        work = self._hash.copy()
        work.update(number.encode())
        return work.hexdigest()
