"""Which operator, account and user a command is about: named, selected, the only one, or asked for at a terminal."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from pelton.cli.prompts import choose, may_ask

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pelton.cli.auth.store import Entity, Store
    from pelton.nkeys import KeyPair

OPERATOR = click.option("--operator", default="", help="The operator; otherwise the selected one.")
FORCE = click.option("-f", "--force", is_flag=True, help="Do not ask.")
TAGS = click.option("--tags", multiple=True, metavar="TAG", help="Add a tag.")
NO_TAGS = click.option("--no-tags", multiple=True, metavar="TAG", help="Remove a tag.")
_SYSTEM = "SYSTEM"


def operator_of(store: Store, name: str) -> Entity:
    """The operator that is meant."""
    names = store.operators()
    if not name and store.selected() in names:
        name = store.selected()
    return store.operator(name or _one("operator", names))


def account_of(store: Store, operator: Entity, name: str | None) -> Entity:
    """The account that is meant; without a name, the only one beside the system account."""
    names = store.accounts(operator.name)
    usual = [each for each in names if each != _SYSTEM] or names
    return store.account(operator.name, name or _one("account", names, usual))


def user_of(store: Store, operator: Entity, account: Entity, name: str | None) -> Entity:
    """The user that is meant."""
    names = store.users(operator.name, account.name)
    return store.user(operator.name, account.name, name or _one("user", names))


def _one(kind: str, names: Sequence[str], usual: Sequence[str] | None = None) -> str:
    usual = names if usual is None else usual
    if len(usual) == 1:
        return usual[0]
    if not names:
        add = f"pelton auth {kind} add NAME" + (" ACCOUNT" if kind == "user" else "")
        raise click.ClickException(f"there is no {kind} yet; {add} makes one")
    if not may_ask():
        raise click.UsageError(f"there are several {kind}s; name one: {', '.join(names)}")
    return choose(kind, names)


def operator_signer(store: Store, operator: Entity) -> KeyPair:
    """The key that signs accounts: a signing key if there is one, else the operator's own."""
    return store.signer(*operator.nats.get("signing_keys", ()), operator.key)


def retagged(entity: Entity, add: Sequence[str], remove: Sequence[str]) -> None:
    """Change the tags; they are kept in lower case, as ``nsc`` does."""
    gone = {each.lower() for each in remove}
    tags = dict.fromkeys([*entity.nats.get("tags", ()), *(each.lower() for each in add)])
    kept = [each for each in tags if each not in gone]
    if kept:
        entity.nats["tags"] = kept
    else:
        entity.nats.pop("tags", None)
