"""Asking servers for their pages over the system account, or reading the pages in an audit archive.

A page is one of the reports of monitoring: VARZ, CONNZ and so on. An answer is ``{"server": …, "data": …}``, or
has an ``error`` instead of data.
"""

from __future__ import annotations

import contextlib
import json
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import click

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from pelton.cli.session import Session
    from pelton.client.sync import Client

STALL_S = 0.5
"""How long to wait for the next server's answer when their number is not known."""

NOBODY = "no server answers: use a user of the system account, and check the NAME"


@dataclass(frozen=True)
class Where:
    """The servers that are asked: by name or ID, host, cluster and tags; how many answers are expected."""

    name: str = ""
    host: str = ""
    cluster: str = ""
    tags: tuple[str, ...] = ()
    expect: int = 0
    archive: str = ""

    def filters(self) -> dict[str, Any]:
        """The fields of a request that choose servers."""
        found = {
            "server_name": self.name,
            "host": self.host,
            "cluster": self.cluster,
            "tags": list(self.tags),
        }
        chosen = {name: value for name, value in found.items() if value}
        return {**chosen, "exact_match": True} if chosen else {}


@dataclass(frozen=True)
class Answer:
    """The answer of one server."""

    whole: Mapping[str, Any] = field(repr=False)
    seconds: float = 0.0

    @property
    def server(self) -> Mapping[str, Any]:
        """The server: name, id, cluster, host, ver ..."""
        return self.whole.get("server") or {}

    @property
    def name(self) -> str:
        """The name of the server."""
        return str(self.server.get("name", ""))

    @property
    def cluster(self) -> str:
        """The name of its cluster; "" for none."""
        return str(self.server.get("cluster") or "")

    @property
    def data(self) -> Mapping[str, Any]:
        """The page; empty if the server sent an error."""
        return self.whole.get("data") or {}

    @property
    def error(self) -> str:
        """The reason of a refusal; "" without one."""
        error = self.whole.get("error")
        if not error:
            return ""
        return str(error.get("description") or error) if isinstance(error, dict) else str(error)


class Source(Protocol):
    """Where pages come from."""

    def ask(self, page: str, wanted: Mapping[str, Any] | None = None) -> list[Answer]:
        """The answers of all servers, by name."""


class Live:
    """Running servers."""

    def __init__(self, client: Client, where: Where) -> None:
        """Asks over the client's connection."""
        self._client = client
        self._where = where
        self._count = where.expect

    def ask(self, page: str, wanted: Mapping[str, Any] | None = None) -> list[Answer]:
        """The answers of the servers that are wanted; ClickException when none answers."""
        where, body = self._where, dict(wanted or {})
        if is_server_id(where.name):
            subject, expected = f"$SYS.REQ.SERVER.{where.name}.{page}", 1
        else:
            subject, expected = f"$SYS.REQ.SERVER.PING.{page}", self.expected()
            body |= where.filters()
        found = list(gather(self._client, subject, body, expected))
        return sorted(found, key=lambda each: each.name)

    def expected(self) -> int:
        """How many servers will answer; 0 for unknown."""
        if self._count:
            return self._count
        where = self._where
        if where.name:
            return 1
        if where.host or where.cluster or where.tags:
            return 0
        (first,) = gather(self._client, "$SYS.REQ.SERVER.PING", {}, 1)
        self._count = int((first.whole.get("statsz") or {}).get("active_servers", 0))
        return self._count


def is_server_id(text: str) -> bool:
    """Whether this is the ID of a server, and not a name."""
    return len(text) == 56 and text.startswith("N") and text.isalnum() and text.isupper()


def gather(
    client: Client, subject: str, body: Mapping[str, Any], expect: int = 0
) -> Iterator[Answer]:
    """The answers, as they come; ClickException when there is none."""
    from pelton.errors import NoRespondersError

    started, found, before = time.monotonic(), 0, client.last_error
    try:
        for message in client.request_many(
            subject, json.dumps(body).encode(), max_messages=expect or None, stall=STALL_S
        ):
            found += 1
            yield Answer(json.loads(message.data), time.monotonic() - started)
    except NoRespondersError:
        pass
    if client.last_error is not None and client.last_error is not before:
        raise client.last_error
    if not found:
        raise click.ClickException(NOBODY)


class Archived:
    """The pages in an audit archive."""

    def __init__(self, where: Where) -> None:
        """Opens the file; ClickException for one that is no archive."""
        from pelton.cli.audit.archive import ArchiveError, Reader

        try:
            self._reader = Reader(Path(where.archive))
        except ArchiveError as error:
            raise click.ClickException(str(error)) from None
        self._where = where

    def ask(self, page: str, wanted: Mapping[str, Any] | None = None) -> list[Answer]:
        """The pages of the servers that are wanted. Other options were fixed when the archive was gathered."""
        from pelton.cli.audit.archive import ACCOUNT_KINDS, SERVER_KINDS

        kind = SERVER_KINDS.get(page) or ACCOUNT_KINDS.get(page)
        if kind is None:
            raise click.ClickException(f"an archive has no {page}")
        merged: dict[str, dict[str, Any]] = {}
        for _, content in self._reader.pages(artifact_type=kind):
            answer = Answer(content)
            if not self._wanted(answer.server):
                continue
            known = merged.setdefault(str(answer.server.get("id") or answer.name), content)
            if known is not content:
                _append(known.get("data") or {}, answer.data)
        return sorted((Answer(each) for each in merged.values()), key=lambda each: each.name)

    def _wanted(self, server: Mapping[str, Any]) -> bool:
        where = self._where
        return (
            where.name in ("", server.get("name"), server.get("id"))
            and where.host in ("", server.get("host"))
            and where.cluster in ("", server.get("cluster"))
            and set(where.tags) <= set(server.get("tags") or ())
        )


def _append(page: dict[str, Any], more: Mapping[str, Any]) -> None:
    """Add the lists of a further page."""
    for name in ("connections", "subscriptions_list", "account_details"):
        if more.get(name):
            page[name] = [*(page.get(name) or ()), *more[name]]


@contextlib.contextmanager
def source(session: Session, where: Where) -> Iterator[Source]:
    """The running servers, or those in the archive."""
    if where.archive:
        yield Archived(where)
        return
    with session.connect() as client:
        yield Live(client, where)


def sound(answers: list[Answer]) -> list[Answer]:
    """The answers; ClickException if one is an error."""
    for each in answers:
        if each.error:
            raise click.ClickException(f"{each.name}: {each.error}")
    return answers
