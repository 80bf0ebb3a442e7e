"""``pelton server config reload`` and ``pelton server account``: actions on servers over the system account."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import click

from pelton.cli.output import print_facts, print_json
from pelton.cli.prompts import confirm
from pelton.cli.server.asking import Answer, Where, gather, is_server_id, source
from pelton.cli.session import Session, command
from pelton.core.base.quoting import shown

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from pelton.client.sync import Client

_FORCE = click.option("-f", "--force/--no-force", default=False, help="Do not ask.")
_SHOWN_MOST = 20


@click.command("reload")
@click.argument("server")
@_FORCE
@command
@click.pass_obj
def reload(session: Session, server: str, force: bool) -> None:
    """Let SERVER (its ID or name) read its configuration again, as SIGHUP does.

    A mistake in the file is reported, and changes nothing.
    """
    with session.connect() as client:
        found = find_server(client, server)
        if not force:
            confirm(f"Really reload the configuration of {found.name} ({found.server['id']})?")
        (answer,) = gather(client, f"$SYS.REQ.SERVER.{found.server['id']}.RELOAD", {}, 1)
    if answer.error:
        raise click.ClickException(f"{found.name}: {answer.error}")
    if session.as_json:
        print_json({"server": dict(answer.server), "reloaded": True})
    else:
        print(shown(f"reloaded the configuration of {found.name}"))


def find_server(client: Client, name: str) -> Answer:
    """The server with this ID or name; ClickException if none answers."""
    if is_server_id(name):
        (found,) = gather(client, f"$SYS.REQ.SERVER.{name}.IDZ", {}, 1)
        return Answer({"server": found.whole.get("server") or found.whole})
    body = {"server_name": name, "exact_match": True}
    try:
        (found,) = gather(client, "$SYS.REQ.SERVER.PING", body, 1)
    except click.ClickException:
        raise click.ClickException(f"no server {name} answers") from None
    return found


@click.command()
@click.argument("account")
@click.option("--host", default="", help="Ask this server.")
@click.option(
    "--archive",
    type=click.Path(exists=True, dir_okay=False),
    default=None,
    help="Read an audit archive instead.",
)
@command
@click.pass_obj
def info(session: Session, account: str, host: str, archive: str | None) -> None:
    """Show what a server knows about ACCOUNT: exports, imports, mappings, revocations."""
    if archive:
        found = _archived(archive, account, host)
    else:
        with source(session, Where(host, expect=1)) as servers:
            (answer,) = servers.ask("ACCOUNTZ", {"account": account})
        if answer.error:
            raise click.ClickException(answer.error)
        found = answer.data.get("account_detail") or {}
    if not found:
        raise click.ClickException(f"there is no account {account}")
    if session.as_json:
        print_json(found)
        return
    print_facts(f"Account {found.get('account_name', account)}", list(account_facts(found)))


def _archived(archive: str, account: str, host: str) -> Mapping[str, Any]:
    from pathlib import Path

    from pelton.cli.audit.archive import ACCOUNT_KINDS, ArchiveError, Reader

    try:
        reader = Reader(Path(archive))
        for tags, content in reader.pages(artifact_type=ACCOUNT_KINDS["INFO"], account=account):
            if host in ("", tags["server"]):
                data = content.get("data", content)
                return dict(data.get("account_detail") or data)
    except ArchiveError as error:
        raise click.ClickException(str(error)) from None
    return {}


def account_facts(found: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """The account as names and values."""
    yield "System account", "yes" if found.get("is_system") else ""
    yield "Expired", "yes" if found.get("expired") else ""
    yield "JetStream", "yes" if found.get("jetstream_enabled") else "no"
    yield "Updated", str(found.get("update_time") or "")
    yield "Issuer", str(found.get("issuer_key") or "")
    yield "Name", str(found.get("name_tag") or "")
    yield "Tags", ", ".join(found.get("tags") or ())
    for name in ("client_connections", "leafnode_connections", "subscriptions"):
        if name in found:
            yield name.replace("_", " ").capitalize(), str(found[name])
    for subject, destinations in sorted((found.get("mappings") or {}).items()):
        yield f"Mapping {subject}", ", ".join(_destination(each) for each in destinations)
    for each in found.get("exports") or ():
        yield f"Export of a {each.get('type', '')}", _export(each)
    for each in found.get("imports") or ():
        yield f"Import of a {each.get('type', '')}", _import(each)
    revoked = found.get("revoked_user") or {}
    for user, when in sorted(revoked.items())[:_SHOWN_MOST]:
        yield "Revoked", f"{user} at {when}"
    if len(revoked) > _SHOWN_MOST:
        yield "Revoked", f"{len(revoked) - _SHOWN_MOST} more; see --json"


def _destination(found: Mapping[str, Any]) -> str:
    weight, cluster = found.get("weight", 100), found.get("cluster")
    text = str(found.get("subject", ""))
    text += f" in cluster {cluster}" if cluster else ""
    return text if weight == 100 else f"{text} ({weight} %)"


def _export(found: Mapping[str, Any]) -> str:
    text = str(found.get("subject", ""))
    approved = found.get("approved_accounts") or ()
    if approved:
        more = len(approved) - _SHOWN_MOST
        names = ", ".join(approved[:_SHOWN_MOST]) + (f" and {more} more" if more > 0 else "")
        text += f" for {names}"
    elif found.get("token_required"):
        text += " for accounts with a token"
    return text


def _import(found: Mapping[str, Any]) -> str:
    subject, local = str(found.get("subject", "")), found.get("local_subject")
    text = f"{subject} of {found.get('account', '')}"
    text += f" as {local}" if local and local != subject else ""
    return text + (", invalid" if found.get("invalid") else "")


@click.command()
@click.argument("account")
@_FORCE
@command
@click.pass_obj
def purge(session: Session, account: str, force: bool) -> None:
    """Remove all streams and consumers of ACCOUNT, with their messages. This can't be undone."""
    if session.domain:
        raise click.UsageError("--domain has no meaning here: the system account has no domains")
    if not force:
        confirm(f"Really remove all JetStream data of account {account}?")
    with session.connect() as client:
        message = client.request(
            f"$JS.API.ACCOUNT.PURGE.{account}", b"", timeout=session.timeout / 1e9
        )
    answer = json.loads(message.data)
    if error := answer.get("error"):
        raise click.ClickException(f"{error.get('description')} ({error.get('err_code')})")
    if session.as_json:
        print_json({"account": account, "initiated": True})
    else:
        print(shown(f"the server removes the JetStream data of {account}"))
