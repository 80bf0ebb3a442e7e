"""``pelton auth account keys``: keys that sign users of an account, each with what its users may do."""

from __future__ import annotations

from typing import Any

import click

from pelton.cli.auth import choosing
from pelton.cli.auth.accounts import save
from pelton.cli.auth.store import Entity, Store, new_pair
from pelton.cli.auth.users import change, new_template, permission_facts, permissions
from pelton.cli.output import print_facts, print_json, print_table
from pelton.cli.prompts import ask, confirm, may_ask
from pelton.cli.session import Session, command
from pelton.core.base.quoting import shown


@click.command()
@click.argument("account", default="")
@click.argument("role", default="")
@choosing.OPERATOR
@click.option("--description", default="", help="The role's description.")
@click.option("--unscoped", is_flag=True, help="Let users have permissions of their own.")
@permissions
@command
@click.pass_obj
def add(
    session: Session,
    /,
    account: str,
    role: str,
    operator: str,
    description: str,
    unscoped: bool,
    **given: Any,
) -> None:
    """Add a signing key to ACCOUNT for the ROLE. The options say what its users may do."""
    store = Store()
    owner = choosing.operator_of(store, operator)
    home = choosing.account_of(store, owner, account)
    pair = new_pair("account")
    found: str | dict[str, Any] = pair.public
    if not unscoped:
        if not role and may_ask():
            role = ask("Role", "ROLE", "")
        if not role:
            raise click.UsageError("Missing argument 'ROLE'")
        if any(each["role"] == role for each in _keys(home)):
            raise click.ClickException(f"the account {home.name} has a role {role}")
        template = new_template()
        change(template, given)
        found = {
            "kind": "user_scope",
            "key": pair.public,
            "role": role,
            "template": template,
            "description": description,
        }
    store.keep(pair)
    home.nats["signing_keys"] = [*(home.nats.get("signing_keys") or ()), found]
    save(store, owner, home)
    _show(session, _keys(home)[-1])


def _keys(account: Entity) -> list[dict[str, Any]]:
    """The signing keys; those without a scope have no template."""
    return [
        {"key": each, "role": ""} if isinstance(each, str) else each
        for each in account.nats.get("signing_keys") or ()
    ]


def _key(account: Entity, name: str) -> dict[str, Any]:
    keys = _keys(account)
    if not name and len(keys) == 1:
        return keys[0]
    if not name and may_ask():
        from pelton.cli.prompts import choose

        name = choose("signing key", [each["role"] or each["key"] for each in keys])
    for each in keys:
        if name and name in (each["key"], each["role"]):
            return each
    raise click.ClickException(f"the account {account.name} has no signing key {name}".rstrip())


def _show(session: Session, key: dict[str, Any]) -> None:
    if session.as_json:
        print_json(key)
        return
    template = key.get("template")
    facts = [("Key", key["key"]), ("Description", key.get("description") or "")]
    limits = [("Scoped", "no")] if template is None else permission_facts(template)
    print_facts(f"Signing key {key['role'] or key['key']}", [*facts, *limits])


@click.command()
@click.argument("account", default="")
@click.argument("key", default="")
@choosing.OPERATOR
@command
@click.pass_obj
def info(session: Session, account: str, key: str, operator: str) -> None:
    """Show the signing KEY of ACCOUNT: its role or itself."""
    store = Store()
    home = choosing.account_of(store, choosing.operator_of(store, operator), account)
    _show(session, _key(home, key))


@click.command()
@click.argument("account", default="")
@choosing.OPERATOR
@command
@click.pass_obj
def ls(session: Session, account: str, operator: str) -> None:
    """List the signing keys of ACCOUNT."""
    store = Store()
    home = choosing.account_of(store, choosing.operator_of(store, operator), account)
    keys = _keys(home)
    if session.as_json:
        print_json(keys)
        return
    rows = [(each["role"], each["key"], each.get("description") or "") for each in keys]
    print_table(("Role", "Key", "Description"), rows)


@click.command()
@click.argument("account", default="")
@click.argument("role", default="")
@click.option("--key", default="", help="The key: its role or itself.")
@choosing.OPERATOR
@choosing.FORCE
@command
@click.pass_obj
def rm(session: Session, account: str, role: str, key: str, operator: str, force: bool) -> None:
    """Remove a signing key of ACCOUNT. Users that it signed are no longer trusted after a push."""
    store = Store()
    owner = choosing.operator_of(store, operator)
    home = choosing.account_of(store, owner, account)
    found = _key(home, key or role)
    if not force:
        confirm(f"Really remove the signing key {found['role'] or found['key']}?")
    home.nats["signing_keys"] = [
        each
        for each in home.nats["signing_keys"]
        if found["key"] != (each if isinstance(each, str) else each["key"])
    ]
    save(store, owner, home)
    store.forget(found["key"])
    if session.as_json:
        print_json({"removed": found["key"]})
    else:
        print(shown(f"removed {found['key']}"))
