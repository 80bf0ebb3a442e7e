"""``pelton audit gather``: the reports of all servers, in an archive."""

from __future__ import annotations

import base64
import contextlib
import datetime
import getpass
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from pelton import __version__
from pelton.cli.audit.archive import (
    ACCOUNT_KINDS,
    SERVER_KINDS,
    STREAM_KIND,
    UNCLUSTERED,
    ArchiveError,
    Writer,
)
from pelton.cli.output import number, print_json, size
from pelton.cli.server.asking import Answer, Live, Where, gather
from pelton.cli.session import Session, command
from pelton.core.base.quoting import shown

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from pelton.client.sync import Client

_PAGE = 1024
_DETAILS: dict[str, dict[str, Any]] = {
    "CONNZ": {"subscriptions": True, "subscriptions_detail": True, "auth": True},
    "GATEWAYZ": {"accounts": True, "subscriptions": True, "subscriptions_detail": True},
    "HEALTHZ": {"details": True},
    "JSZ": {"accounts": True, "streams": True, "consumer": True, "config": True, "raft": True},
    "LEAFZ": {"subscriptions": True},
    "ROUTEZ": {"subscriptions": True, "subscriptions_detail": True},
    "SUBSZ": {"subscriptions": True},
}
# the list that is full if there is another page
_LISTS = {"CONNZ": "connections", "SUBSZ": "subscriptions_list", "JSZ": "account_details"}
_PROFILES = (
    ("goroutine", 1),
    ("goroutine", 2),
    ("heap", 0),
    ("allocs", 0),
    ("mutex", 0),
    ("threadcreate", 0),
    ("block", 0),
    ("cpu", 0),
)
_CPU_NS = 1_000_000_000


@dataclass(frozen=True)
class Wanted:
    """The reports to gather."""

    pages: bool
    profiles: bool
    accounts: bool
    streams: bool
    consumers: bool
    details: bool
    cluster: str


def _switch(name: str, text: str) -> Callable[[Any], Any]:
    return click.option(f"--{name}/--no-{name}", default=True, help=text)


@click.command("gather")
@click.option(
    "-o", "--output", type=click.Path(dir_okay=False, path_type=Path), help="File of the archive."
)
@click.option("--cluster", default="", help="Only servers of this cluster.")
@_switch("server-endpoints", "Pages of servers.")
@_switch("server-profiles", "Profiles of servers.")
@_switch("account-endpoints", "Pages of accounts.")
@_switch("streams", "Streams of each account.")
@_switch("consumers", "Their consumers.")
@_switch("details", "Pages with all details.")
@_switch("progress", "Print the progress.")
@click.option("-f", "--force", is_flag=True, help="Replace an existing file.")
@command
@click.pass_obj
def gather_(
    session: Session,
    output: Path | None,
    cluster: str,
    server_endpoints: bool,
    server_profiles: bool,
    account_endpoints: bool,
    streams: bool,
    consumers: bool,
    details: bool,
    progress: bool,
    force: bool,
) -> None:
    """Gather the reports of all servers into an archive, for pelton audit analyze.

    Needs a user of the system account. The archive has names, subjects and addresses, and no messages.
    """
    now = datetime.datetime.now(datetime.UTC)
    if output is None:
        output = Path(tempfile.gettempdir()) / f"audit-archive-{now:%Y%m%d-%H%M%S}.zip"
    if output.exists() and not force:
        raise click.ClickException(f"{output} already exists; --force replaces it")
    wanted = Wanted(
        server_endpoints, server_profiles, account_endpoints, streams, consumers, details, cluster
    )
    with session.connect() as client:
        writer = Writer(output, (now.year, now.month, now.day, now.hour, now.minute, now.second))
        gathering = Gathering(client, writer, wanted, progress and not session.as_json)
        try:
            gathering.run()
            info = client.server_info
            about = {
                "capture_timestamp": now.isoformat().replace("+00:00", "Z"),
                "connected_server_name": info.server_name,
                "connected_server_version": info.version,
                "connect_url": f"nats://{info.host}:{info.port}",
                "user_name": _user(),
                "version": f"pelton {__version__}",
            }
            writer.close(about, "".join(f"{line}\n" for line in gathering.log))
        except BaseException:
            writer.abandon()
            raise
    bytes_ = output.stat().st_size
    if session.as_json:
        found = {"file": str(output), "bytes": bytes_, "pages": gathering.pages}
        print_json({**found, "servers": len(gathering.servers), "problems": gathering.problems})
    else:
        print(shown(f"wrote {number(gathering.pages)} pages to {output} ({size(bytes_)})"))


def _user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return "?"


class Gathering:
    """Asks servers and writes their answers. A refusal is noted as a problem, and the others continue."""

    def __init__(self, client: Client, writer: Writer, wanted: Wanted, told: bool) -> None:
        """`told`: print the progress on stderr."""
        self._client = client
        self._writer = writer
        self._wanted = wanted
        self._told = told
        self.servers: dict[str, Mapping[str, Any]] = {}
        self.log: list[str] = []
        self.problems: list[str] = []
        self.pages = 0

    def run(self) -> None:
        """Gather everything; ClickException when no server answers."""
        live = Live(self._client, Where(cluster=self._wanted.cluster))
        found = live.ask("VARZ")
        self.servers = {str(each.server["id"]): each.server for each in found}
        self._say(f"{len(self.servers)} servers: {', '.join(each.name for each in found)}")
        accounts = self._accounts()
        self._say(f"{len(accounts)} accounts: {', '.join(accounts)}")
        if self._wanted.pages:
            for identity in self.servers:
                self._server(identity)
        if self._wanted.profiles:
            for identity in self.servers:
                self._profiles(identity)
        if self._wanted.accounts:
            for account in accounts:
                self._account(account)
        if self._wanted.streams:
            for account in accounts:
                self._streams(account)

    def _say(self, text: str) -> None:
        self.log.append(f"{time.strftime('%H:%M:%S')} {text}")
        if self._told:
            click.echo(shown(text), err=True)

    def _problem(self, text: str) -> None:
        self.problems.append(text)
        self.log.append(f"{time.strftime('%H:%M:%S')} {text}")
        click.echo(shown(f"pelton: {text}"), err=True)

    def _tags(self, server: Mapping[str, Any], kind: str, **more: str) -> dict[str, str]:
        cluster = str(server.get("cluster") or UNCLUSTERED)
        return {"cluster": cluster, "server": str(server["name"]), "artifact_type": kind, **more}

    def _keep(self, tags: dict[str, str], content: object) -> None:
        try:
            self._writer.add(tags, content)
            self.pages += 1
        except ArchiveError as error:
            self._problem(str(error))

    def _ask(self, subject: str, body: Mapping[str, Any], expect: int = 0) -> Iterator[Answer]:
        """The answers of servers that are known, without those that refuse."""
        with contextlib.suppress(click.ClickException):
            for answer in gather(self._client, subject, body, expect):
                if str(answer.server.get("id")) not in self.servers:
                    continue
                if "not jetstream enabled" in answer.error:
                    continue  # nothing is missing
                if answer.error:
                    self._problem(f"{answer.name}: {subject}: {answer.error}")
                    continue
                yield answer

    def _accounts(self) -> list[str]:
        found: set[str] = set()
        for answer in self._ask("$SYS.REQ.SERVER.PING.ACCOUNTZ", {}, len(self.servers)):
            found.update(answer.data.get("accounts") or ())
        return sorted(found)

    def _server(self, identity: str) -> None:
        server = self.servers[identity]
        self._say(f"pages of {server['name']}")
        for page, kind in SERVER_KINDS.items():
            if page == "JSZ" and not server.get("jetstream"):
                continue
            body = dict(_DETAILS.get(page, {}) if self._wanted.details else {})
            offset = 0
            while True:
                if page in _LISTS:
                    body |= {"offset": offset, "limit": _PAGE}
                answers = list(self._ask(f"$SYS.REQ.SERVER.{identity}.{page}", body, 1))
                for answer in answers:
                    self._keep(self._tags(server, kind), answer.whole)
                full = [
                    len(each.data.get(_LISTS.get(page, ""), ()) or ()) >= _PAGE for each in answers
                ]
                if not any(full):
                    break
                offset += _PAGE

    def _profiles(self, identity: str) -> None:
        server = self.servers[identity]
        self._say(f"profiles of {server['name']}")
        for name, level in _PROFILES:
            body = {
                "name": name,
                "debug": level,
                **({"duration": _CPU_NS} if name == "cpu" else {}),
            }
            for answer in self._ask(f"$SYS.REQ.SERVER.{identity}.PROFILEZ", body, 1):
                if error := answer.data.get("error"):
                    self._problem(f"{answer.name}: profile {name}: {error}")
                    continue
                called = f"{name}_{level}" if level else name
                tags = self._tags(server, "profile", profile_name=called)
                raw = base64.b64decode(answer.data.get("profile") or "")
                self._writer.add_profile(tags, raw)
                self.pages += 1

    def _account(self, account: str) -> None:
        self._say(f"pages of account {account}")
        for page, kind in ACCOUNT_KINDS.items():
            if page in ("RAFTZ", "IPQUEUESZ"):
                subject = f"$SYS.REQ.SERVER.PING.{page}"
                body: dict[str, Any] = {"account" if page == "RAFTZ" else "filter": account}
            else:
                subject, body = f"$SYS.REQ.ACCOUNT.{account}.{page}", _DETAILS.get(page, {})
                body = {**body, "limit": _PAGE} if page in _LISTS else body
            for answer in self._ask(subject, body, len(self.servers)):
                if answer.data:
                    tags = self._tags(answer.server, kind, account=account)
                    self._keep(tags, answer.whole)

    def _streams(self, account: str) -> None:
        body = {
            "account": account,
            "streams": True,
            "consumer": self._wanted.consumers,
            "direct_consumer": True,
            "config": True,
            "raft": True,
        }
        for answer in self._ask("$SYS.REQ.SERVER.PING.JSZ", body, len(self.servers)):
            details = list(answer.data.get("account_details") or ())
            if len(details) != 1 or details[0].get("name") != account:
                continue  # a server that does not have the account tells of all others
            for stream in details[0].get("stream_detail") or ():
                name = str(stream.get("name", ""))
                tags = self._tags(answer.server, STREAM_KIND, account=account, stream=name)
                self._keep(tags, stream)
