"""Schemas by their number: from a key-value bucket, or from a registry with Confluent's HTTP API.

A payload begins with a zero byte and the number of its schema, four bytes, as the serializers of registries write
it. In a bucket the key is the number, and the value is what ``GET /schemas/ids/{number}`` of a registry gives::

    pelton kv put SCHEMAS 7 '{"schemaType": "AVRO", "schema": "{\\"type\\": \\"record\\", ...}"}'

The ``schema`` of Protobuf is the base64 of a set of descriptors, as ``protoc --descriptor_set_out`` writes it. A
schema never changes, so each process asks once. Does not depend on Spark.
"""

from __future__ import annotations

import base64
import json
import struct
import time
import urllib.error
import urllib.request
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, unquote, urlsplit, urlunsplit

from pelton.api.keyvalue import prefix_of, stream_of
from pelton.errors import MessageNotFoundError, StreamNotFoundError
from pelton.spark.asking import Asking
from pelton.spark.connection import ReadError
from pelton.spark.payloads.protobuf import files_of, renamed
from pelton.spark.servers import Servers

if TYPE_CHECKING:
    from collections.abc import Iterator

_HEAD = struct.Struct(">bI")
_TIMEOUT_SECONDS = 10.0
_TRIES = 4


@dataclass(frozen=True)
class Schema:
    """A schema of a registry: its text, or the files of its descriptors, each after those that it needs."""

    kind: str
    text: str
    files: tuple[bytes, ...] = ()


@dataclass(frozen=True)
class Registry:
    """Where schemas are: ``place`` is a URL, or the name of a bucket on the servers."""

    place: str = field(repr=False)
    servers: Servers = field(default_factory=Servers)

    def __str__(self) -> str:
        """The place, without a password."""
        return _without_user(self.place)[0] if "://" in self.place else f"bucket {self.place}"

    def schema(self, number: int) -> Schema | None:
        """The schema with this number, or None if there is none.

        Raises :class:`ReadError` when the registry does not answer.
        """
        key = (self, number)
        if key not in _KNOWN:
            found = self._by_http(number) if "://" in self.place else self._of_bucket(number)
            if found is None:
                return None  # it may be registered later
            _KNOWN[key] = found
        return _KNOWN[key]

    def _of_bucket(self, number: int) -> Schema | None:
        stream, subject = stream_of(self.place), f"{prefix_of(self.place)}{number}"
        try:
            found = Asking(self.servers).ask(
                str(self), lambda jetstream: jetstream.get_message(stream, last_by_subject=subject)
            )
        except MessageNotFoundError:
            return None
        except StreamNotFoundError:
            raise ReadError(f"there is no {self} on {self.servers}") from None
        if not found.data:  # a deleted key
            return None
        told = _object(found.data, f"key {number} of {self}")
        kind, text = told.get("schemaType", "AVRO"), str(told.get("schema", ""))
        if kind != "PROTOBUF":
            return Schema(kind, text)
        try:
            return Schema(kind, "", files_of(base64.b64decode(text, validate=True)))
        except ValueError as problem:
            raise ReadError(
                f"key {number} of {self} has no set of descriptors in base64: {problem}"
            ) from None

    def _by_http(self, number: int) -> Schema | None:
        told = self._get(f"/schemas/ids/{number}")
        if told is None:
            return None
        kind = told.get("schemaType", "AVRO")
        if kind != "PROTOBUF":
            return Schema(kind, str(told["schema"]))
        return Schema(kind, "", tuple(dict(self._files(f"/schemas/ids/{number}", "", {})).values()))

    def _files(self, path: str, name: str, done: dict[str, Any]) -> Iterator[tuple[str, bytes]]:
        """The file of a schema, behind those that it imports."""
        told = self._get(f"{path}?format=serialized")
        if told is None:
            raise ReadError(f"{self} has no {path}, which another schema needs")
        done[name] = True
        for each in told.get("references") or ():
            if each["name"] not in done:
                subject, version = quote(each["subject"], safe=""), each["version"]
                yield from self._files(
                    f"/subjects/{subject}/versions/{version}", each["name"], done
                )
        try:
            yield name, renamed(base64.b64decode(told["schema"], validate=True), name)
        except ValueError:
            raise ReadError(f"{self} does not give {path} as a descriptor") from None

    def _get(self, path: str) -> dict[str, Any] | None:
        base, authorization = _without_user(self.place.rstrip("/"))
        request = urllib.request.Request(base + path, headers={"Accept": "application/json"})
        if authorization:
            request.add_header("Authorization", authorization)
        said: object = ""
        for attempt in range(_TRIES):
            try:
                with urllib.request.urlopen(request, timeout=_TIMEOUT_SECONDS) as answer:
                    return _object(answer.read(), f"{base}{path}")
            except urllib.error.HTTPError as problem:
                if problem.code == 404:
                    return None
                said = f"{problem.code} {problem.reason}"
                if problem.code < 500:
                    break
            except (OSError, urllib.error.URLError) as problem:
                said = getattr(problem, "reason", problem)
            if attempt < _TRIES - 1:
                time.sleep(0.2 * 2**attempt)
        raise ReadError(f"the registry {base} does not give {path}: {said}")


_KNOWN: dict[tuple[Registry, int], Schema] = {}


def split(payload: bytes) -> tuple[int, bytes]:
    """The number of a payload's schema, and the rest. ValueError if it begins otherwise."""
    if len(payload) < _HEAD.size or payload[0]:
        raise ValueError("it does not begin with a zero byte and the number of a schema")
    return int(_HEAD.unpack_from(payload)[1]), payload[_HEAD.size :]


def _object(data: bytes, what: str) -> dict[str, Any]:
    try:
        found = json.loads(data)
    except ValueError:
        found = None
    if not isinstance(found, dict) or "schema" not in found:
        raise ReadError(f'{what} is no JSON object with a "schema"')
    return found


def _without_user(url: str) -> tuple[str, str]:
    """A URL without user and password, and the header that has these."""
    parts = urlsplit(url)
    if parts.username is None:
        return url, ""
    told = f"{unquote(parts.username)}:{unquote(parts.password or '')}"
    bare = urlunsplit(parts._replace(netloc=parts.netloc.rpartition("@")[2]))
    return bare, f"Basic {base64.b64encode(told.encode()).decode()}"
