"""``pelton auth account push`` and ``query``: the account JWTs that servers have."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from pelton.cli.auth import choosing
from pelton.cli.auth.accounts import account_facts
from pelton.cli.auth.store import Store, claims_of, write_private
from pelton.cli.output import print_facts, print_json, print_table
from pelton.cli.server.asking import NOBODY, STALL_S, Live, Where
from pelton.cli.session import Session, command
from pelton.nkeys import ACCOUNT, is_public

if TYPE_CHECKING:
    from pelton.client.sync import Client


@click.command()
@click.argument("account", default="")
@choosing.OPERATOR
@click.option("--show", is_flag=True, help="Print the claims first.")
@command
@click.pass_obj
def push(session: Session, account: str, operator: str, show: bool) -> int:
    """Send the JWT of ACCOUNT to the servers. Needs a user of the system account.

    Ends with 1 if a server does not take it.
    """
    store = Store()
    owner = choosing.operator_of(store, operator)
    found = choosing.account_of(store, owner, account)
    if show:
        print_json(found.claims)
    subject = f"$SYS.REQ.ACCOUNT.{found.key}.CLAIMS.UPDATE"
    with session.connect() as client:
        answers = _sent(client, subject, found.token.encode())
    rows = [_row(each) for each in answers]
    if session.as_json:
        print_json(rows)
    else:
        cells = [(row["server"], "stored" if row["ok"] else "refused", row["text"]) for row in rows]
        print_table(("Server", "Account", "Text"), cells)
    return 0 if all(row["ok"] for row in rows) else 1


def _sent(client: Client, subject: str, data: bytes) -> list[dict[str, Any]]:
    from pelton.errors import NoRespondersError

    try:
        count = Live(client, Where()).expected()
        found = [
            json.loads(each.data)
            for each in client.request_many(
                subject, data, max_messages=count or None, stall=STALL_S
            )
        ]
    except NoRespondersError:
        found = []
    if client.last_error is not None:
        raise client.last_error
    if not found:
        raise click.ClickException(f"{NOBODY}, and that it has a resolver for accounts")
    return found


def _row(answer: dict[str, Any]) -> dict[str, Any]:
    error, data = answer.get("error"), answer.get("data") or {}
    text = str(error.get("description", error)) if error else str(data.get("message", ""))
    server = str((answer.get("server") or {}).get("name", ""))
    return {"server": server, "ok": not error and data.get("code", 200) == 200, "text": text}


@click.command()
@click.argument("account")
@click.argument("output", type=click.Path(dir_okay=False, path_type=Path), required=False)
@choosing.OPERATOR
@choosing.FORCE
@command
@click.pass_obj
def query(session: Session, account: str, output: Path | None, operator: str, force: bool) -> None:
    """Show ACCOUNT (its name or public key) as the servers have it; with OUTPUT, write its JWT there.

    Needs a user of the system account.
    """
    key = account
    if not is_public(account, ACCOUNT):
        store = Store()
        key = store.account(choosing.operator_of(store, operator).name, account).key
    with session.connect() as client:
        answer = client.request(f"$SYS.REQ.ACCOUNT.{key}.CLAIMS.LOOKUP", b"")
    token = answer.data.decode("utf-8", "replace")
    if not token:
        raise click.ClickException(f"no server has the account {account}")
    claims = claims_of(token, "account")
    if output is not None:
        write_private(output, token, force=force)
    if session.as_json:
        print_json(claims)
    else:
        print_facts(f"Account {claims.get('name', '')}", [("Key", key), *account_facts(claims)])
