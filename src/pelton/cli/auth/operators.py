"""``pelton auth operator``: operators, whose keys sign accounts."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from pelton.cli.auth import choosing
from pelton.cli.auth.store import (
    Entity,
    Store,
    check_name,
    claims_of,
    new_pair,
)
from pelton.cli.inputs import read_text_input
from pelton.cli.output import number, print_facts, print_json, print_names, print_table
from pelton.cli.prompts import ask, confirm, may_ask
from pelton.cli.session import Session, command
from pelton.core.base.quoting import shown
from pelton.nkeys import KeyPair, NkeyError, read_jwt, read_seed

if TYPE_CHECKING:
    from collections.abc import Sequence

SYSTEM = "SYSTEM"
_NAME = click.argument("name", default="")


@click.command()
@_NAME
@click.option("--service", multiple=True, metavar="URL", help="URL of the operator's servers.")
@click.option("--account-server", default="", metavar="URL", help="URL of the account server.")
@click.option("--signing-key/--no-signing-key", default=True, help="With a signing key.")
@choosing.TAGS
@command
@click.pass_obj
def add(
    session: Session,
    name: str,
    service: Sequence[str],
    account_server: str,
    signing_key: bool,
    tags: Sequence[str],
) -> None:
    """Make the operator NAME, with a system account and a signing key, and select it."""
    from pelton.cli.auth.accounts import new_account

    store = Store()
    if not name and may_ask():
        name = ask("Name of the operator", "NAME", "")
    path, pair = store.place("operator", name), new_pair("operator")
    operator = Entity("operator", name, path, {"sub": pair.public, "nats": {}})
    store.keep(pair)
    if signing_key:
        signer = new_pair("operator")
        store.keep(signer)
        operator.nats["signing_keys"] = [signer.public]
    _set_urls(operator, service or None, account_server or None)
    choosing.retagged(operator, tags, ())
    system, system_pair = new_account(store, operator, SYSTEM)
    operator.nats["system_account"] = system_pair.public
    store.sign(operator, pair)
    store.sign(system, choosing.operator_signer(store, operator))
    store.select(name)
    show(session, store, operator)


def _set_urls(operator: Entity, service: Sequence[str] | None, account_server: str | None) -> None:
    if service is not None:
        operator.nats["operator_service_urls"] = [each for each in service if each]
    if account_server is not None:
        operator.nats["account_server_url"] = account_server


@click.command()
@_NAME
@click.option("--service", multiple=True, metavar="URL", help="URL of the operator's servers.")
@click.option("--account-server", metavar="URL", help="URL of the account server; empty for none.")
@choosing.TAGS
@choosing.NO_TAGS
@command
@click.pass_obj
def edit(
    session: Session,
    name: str,
    service: Sequence[str],
    account_server: str | None,
    tags: Sequence[str],
    no_tags: Sequence[str],
) -> None:
    """Change the operator NAME."""
    store = Store()
    operator = choosing.operator_of(store, name)
    _set_urls(operator, service or None, account_server)
    choosing.retagged(operator, tags, no_tags)
    store.sign(operator, store.signer(operator.key))
    show(session, store, operator)


@click.command()
@_NAME
@command
@click.pass_obj
def info(session: Session, name: str) -> None:
    """Show the operator NAME; with --json, the claims of its JWT."""
    store = Store()
    show(session, store, choosing.operator_of(store, name))


def show(session: Session, store: Store, operator: Entity) -> None:
    """Print an operator."""
    if session.as_json:
        print_json(operator.claims)
        return
    nats = operator.nats
    accounts = {
        store.account(operator.name, each).key: each for each in store.accounts(operator.name)
    }
    system = nats.get("system_account", "")
    print_facts(
        f"Operator {operator.name}",
        [
            ("Key", operator.key),
            ("Key kept here", "yes" if store.pair(operator.key) else "no"),
            ("Signing keys", ", ".join(nats.get("signing_keys") or ())),
            ("Accounts", number(len(accounts))),
            ("System account", f"{accounts.get(system, '')} {system}".strip()),
            ("Servers", ", ".join(nats.get("operator_service_urls") or ())),
            ("Account server", nats.get("account_server_url") or ""),
            ("Tags", ", ".join(nats.get("tags") or ())),
            ("File", str(operator.path)),
        ],
    )


@click.command()
@click.option("--names", is_flag=True, help="Only the names.")
@command
@click.pass_obj
def ls(session: Session, names: bool) -> None:
    """List the operators."""
    store = Store()
    found = [store.operator(each) for each in store.operators()]
    if names:
        print_names(session, [each.name for each in found])
        return
    rows = [
        {
            "name": each.name,
            "key": each.key,
            "accounts": len(store.accounts(each.name)),
            "signing_keys": len(each.nats.get("signing_keys") or ()),
            "selected": each.name == store.selected(),
        }
        for each in found
    ]
    if session.as_json:
        print_json(rows)
        return
    columns = ("Name", "Key", "Accounts", "Signing keys", "Selected")
    cells = [
        (
            str(row["name"]),
            str(row["key"]),
            str(row["accounts"]),
            str(row["signing_keys"]),
            "yes" if row["selected"] else "",
        )
        for row in rows
    ]
    print_table(columns, cells, right=frozenset(columns[2:4]))


@click.command()
@_NAME
@command
@click.pass_obj
def select(session: Session, name: str) -> None:
    """Let commands use the operator NAME."""
    store = Store()
    if not name and may_ask():
        from pelton.cli.prompts import choose

        name = choose("operator", store.operators())
    operator = store.operator(name)
    store.select(operator.name)
    if session.as_json:
        print_json({"operator": operator.name})
    else:
        print(shown(f"selected operator {operator.name}"))


# -- signing keys


@click.command("ls")
@_NAME
@command
@click.pass_obj
def keys_ls(session: Session, name: str) -> None:
    """List the signing keys of the operator NAME."""
    operator = choosing.operator_of(Store(), name)
    print_names(session, operator.nats.get("signing_keys") or [])


@click.command("add")
@_NAME
@command
@click.pass_obj
def keys_add(session: Session, name: str) -> None:
    """Add a signing key to the operator NAME; accounts are signed with the first one."""
    store = Store()
    operator = choosing.operator_of(store, name)
    owner, pair = store.signer(operator.key), new_pair("operator")
    store.keep(pair)
    operator.nats["signing_keys"] = [*(operator.nats.get("signing_keys") or ()), pair.public]
    store.sign(operator, owner)
    print_names(session, [pair.public])


@click.command("rm")
@_NAME
@click.argument("key", default="")
@choosing.FORCE
@command
@click.pass_obj
def keys_rm(session: Session, name: str, key: str, force: bool) -> None:
    """Remove the signing KEY of the operator NAME. Accounts that it signed are no longer trusted."""
    store = Store()
    operator = choosing.operator_of(store, name)
    found = list(operator.nats.get("signing_keys") or ())
    if not key and may_ask():
        from pelton.cli.prompts import choose

        key = choose("signing key", found)
    if key not in found:
        raise click.ClickException(f"the operator {operator.name} has no signing key {key}")
    signs = [
        each
        for each in store.accounts(operator.name)
        if store.account(operator.name, each).claims.get("iss") == key
    ]
    if not force:
        confirm(f"Really remove the signing key {key}? It signed {len(signs)} accounts")
    operator.nats["signing_keys"] = [each for each in found if each != key]
    store.sign(operator, store.signer(operator.key))
    store.forget(key)
    if session.as_json:
        print_json({"removed": key, "accounts": signs})
    else:
        print(shown(f"removed {key}"))


# -- import, backup, restore


@click.command("import")
@click.argument("token", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.argument("keys", nargs=-1, type=click.Path(exists=True, dir_okay=False, path_type=Path))
@command
@click.pass_obj
def import_(session: Session, token: Path, keys: Sequence[Path]) -> None:
    """Take over an operator from the file TOKEN with its JWT, and KEYS: files with its seeds."""
    store = Store()
    text = read_jwt(read_text_input(token, encoding="utf-8"))
    claims = claims_of(text, "operator")
    name = str(claims.get("name") or "")
    check_name(name)
    operator = Entity("operator", name, store.place("operator", name), claims)
    known = {operator.key, *(operator.nats.get("signing_keys") or ())}
    pairs = [_pair(each) for each in keys]
    for pair in pairs:
        if pair.public not in known:
            raise click.ClickException(f"{pair.public} is no key of operator {name}")
    owner = next((pair for pair in pairs if pair.public == operator.key), None)
    if owner is None:
        raise click.ClickException(f"the key {operator.key} of operator {name} is missing")
    for pair in pairs:
        store.keep(pair)
    store.sign(operator, owner)
    show(session, store, operator)


def _pair(path: Path) -> KeyPair:
    try:
        return KeyPair.from_seed(read_seed(read_text_input(path, encoding="utf-8")))
    except NkeyError as error:
        raise click.ClickException(f"{path}: {error}") from None


@click.command()
@_NAME
@click.option("--resolver", default="./jwt", show_default=True, help="Folder of account JWTs.")
@command
@click.pass_obj
def config(session: Session, name: str, resolver: str) -> None:
    """Print the part of a server's configuration that trusts the operator NAME.

    It has the system account's JWT; other accounts come with pelton auth account push.
    """
    store = Store()
    operator = choosing.operator_of(store, name)
    whole = server_part(store, operator, resolver)
    if session.as_json:
        print_json(whole)
        return
    print(
        "".join(f"{key}: {json.dumps(value, indent=2)}\n" for key, value in whole.items()), end=""
    )


def server_part(store: Store, operator: Entity, resolver: str) -> dict[str, Any]:
    """The keys of a server's configuration that trust the operator."""
    whole: dict[str, Any] = {"operator": operator.token}
    system = str(operator.nats.get("system_account") or "")
    if system:
        whole["system_account"] = system
        whole["resolver_preload"] = {system: store.account(operator.name, system).token}
    whole["resolver"] = {"type": "full", "dir": resolver, "allow_delete": False}
    return whole
