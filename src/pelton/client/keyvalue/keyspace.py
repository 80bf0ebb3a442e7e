"""How a bucket's keys and values stand in its stream: subjects, headers and bytes. Asks no server."""

from __future__ import annotations

from typing import TYPE_CHECKING, Generic, TypeVar

from pelton.api import keyvalue as wire
from pelton.core.protocol.subjects import collide, subset
from pelton.errors import InvalidKeyError, ProtocolError

from ..jetstream.direct import error_of
from .codecs import PlainKeys, encoded_filter, encoded_value
from .entries import KvEntry

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ..base.message import BaseMessage
    from .codecs import KeyCodec, ValueCodec

V = TypeVar("V")


class Keyspace(Generic[V]):
    """The keys of one bucket, as a handle of it reads and writes them."""

    def __init__(
        self,
        bucket: str,
        stored: str,
        written: str,
        values: ValueCodec[V],
        keys: KeyCodec | None = None,
    ) -> None:
        """``stored`` and ``written``: how the subjects of stored keys begin, and those to publish to."""
        self.bucket = bucket
        self.values = values
        self.keys: KeyCodec = PlainKeys() if keys is None else keys
        self._stored = stored
        self._written = written
        self._plain = isinstance(self.keys, PlainKeys)

    @property
    def everything(self) -> str:
        """The subject of all stored keys."""
        return f"{self._stored}>"

    def _stored_key(self, key: str) -> str:
        """The key in the bucket; InvalidKeyError."""
        if not self._plain:
            try:
                key, given = self.keys.encode_key(key), key
            except ValueError as error:
                raise InvalidKeyError(f"key {key!r} cannot be encoded: {error}") from error
            if not wire.valid_key(key):
                raise InvalidKeyError(
                    f"key {given!r} is encoded as {key!r}, which no bucket can hold"
                )
        elif not isinstance(key, str) or not wire.valid_key(key):
            raise InvalidKeyError(
                f"{key!r} cannot be a key: use letters, digits and any of - _ / =, in tokens between "
                "single dots; bucket.with_keys(Base64Keys()) takes any text"
            )
        return key

    def subject(self, key: str) -> str:
        """The subject that the key is stored under; InvalidKeyError."""
        return self._stored + self._stored_key(key)

    def write_subject(self, key: str) -> str:
        """The subject that a value of the key is published to; InvalidKeyError."""
        return self._written + self._stored_key(key)

    def encoded(self, key: str, value: V) -> bytes:
        """The bytes of a value; InvalidValueError, TypeError."""
        return encoded_value(self.values, value, key)

    def subjects(self, filters: Sequence[str]) -> list[str]:
        """The subjects of these filters, without those that others contain; InvalidKeyError."""
        found: list[str] = []
        for each in filters or (">",):
            if not isinstance(each, str):
                raise InvalidKeyError(f"a filter is text, got {each!r}")
            pattern = each if self._plain else encoded_filter(self.keys, each)
            if not wire.valid_filter(pattern):
                raise InvalidKeyError(
                    f"filter {each!r} matches no key: give a key in which * may stand for a token, "
                    "and > for the rest"
                )
            found.append(self._stored + pattern)
        found = [
            each
            for n, each in enumerate(found)
            if not any(
                subset(each, other) and (m < n or not subset(other, each))
                for m, other in enumerate(found)
                if m != n
            )
        ]
        for n, each in enumerate(found):
            for other in found[:n]:
                if collide(each, other):
                    raise InvalidKeyError(
                        f"filters {other!r} and {each!r} have keys in common, which a server refuses: "
                        "ask for them one after the other"
                    )
        return found

    def entry(
        self,
        subject: str,
        revision: int,
        stored_at: int | str,
        data: bytes,
        headers: Mapping[str, Sequence[str]],
        *,
        delta: int = 0,
        is_update: bool = False,
    ) -> KvEntry[V]:
        """The entry of a stored message."""
        key = subject[len(self._stored) :]
        if not self._plain:
            try:
                key = self.keys.decode_key(key)
            except ValueError as error:
                raise InvalidKeyError(
                    f"key {key!r} in bucket {self.bucket!r} cannot be decoded: {error}"
                ) from error
        return KvEntry(
            self.bucket, key, revision, stored_at, data, headers, self.values, delta, is_update
        )

    def answered(self, subject: str, answer: BaseMessage) -> KvEntry[V] | None:
        """The entry in the answer to a direct get; None when it belongs to another key."""
        if answer.status:
            raise error_of(answer)
        headers = answer.headers
        try:  # the server's headers are after those of the message
            stored, at = headers["Nats-Subject"][-1], headers["Nats-Time-Stamp"][-1]
            seq = int(headers["Nats-Sequence"][-1])
        except (KeyError, ValueError) as error:
            raise ProtocolError(f"not an answer to a direct get: {headers!r}") from error
        return self.entry(stored, seq, at, answer.data, headers) if stored == subject else None
