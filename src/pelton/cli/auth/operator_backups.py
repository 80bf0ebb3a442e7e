"""``pelton auth operator backup`` and ``restore``: an operator with everything below it in one file.

The file is that of ``nats auth operator backup``: ``{"name", "key": {"key": seed}, "token", "signingKeys", "accounts":
[{..., "users": [...]}]}``, or that in base64, sealed with a curve key.
"""

from __future__ import annotations

import base64
import json
import secrets
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from pelton.cli.auth import choosing
from pelton.cli.auth.operators import show
from pelton.cli.auth.store import Entity, Store, claims_of, write_private
from pelton.cli.inputs import read_input, read_text_input
from pelton.cli.output import print_json
from pelton.cli.session import Session, command
from pelton.core.base.quoting import shown
from pelton.nkeys import CurvePair, KeyPair, NkeyError, read_seed

if TYPE_CHECKING:
    from collections.abc import Sequence

_KEY = click.option(
    "--key",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="File with a curve key (pelton auth nkey gen curve) to encrypt with.",
)


@click.command()
@click.argument("name")
@click.argument("output", type=click.Path(dir_okay=False, path_type=Path))
@_KEY
@choosing.FORCE
@command
@click.pass_obj
def backup(session: Session, name: str, output: Path, key: Path | None, force: bool) -> None:
    """Write the operator NAME with its accounts, users and all their keys to OUTPUT."""
    store = Store()
    operator = store.operator(name)
    text = json.dumps(_backed_up(store, operator), indent=2)
    if key is not None:
        curve = _curve(key)
        sealed = curve.seal(text.encode(), curve.public, secrets.token_bytes(24))
        text = base64.b64encode(sealed).decode()
    write_private(output, text, force=force)
    if key is None:
        click.echo("the backup is not encrypted and contains all keys; see --key", err=True)
    if session.as_json:
        print_json({"operator": name, "file": str(output), "encrypted": key is not None})
    else:
        print(shown(f"wrote operator {name} to {output}"))


def _curve(path: Path) -> CurvePair:
    try:
        return CurvePair.from_seed(read_seed(read_text_input(path, encoding="utf-8")))
    except (NkeyError, ImportError) as error:
        raise click.ClickException(f"{path}: {error}") from None


def _backed_up(store: Store, operator: Entity) -> dict[str, Any]:
    """The operator with everything below it, as ``nats auth operator backup`` writes it."""
    accounts = []
    for name in store.accounts(operator.name):
        account = store.account(operator.name, name)
        users = [store.user(operator.name, name, each) for each in store.users(operator.name, name)]
        publics = [
            each if isinstance(each, str) else each["key"]
            for each in account.nats.get("signing_keys") or ()
        ]
        accounts.append(
            {
                **_entry(store, account),
                "signingKeys": _seeds(store, publics),
                "users": [_entry(store, each) for each in users],
            }
        )
    publics = list(operator.nats.get("signing_keys") or ())
    return {
        **_entry(store, operator),
        "signingKeys": _seeds(store, publics),
        "accounts": accounts,
    }


def _entry(store: Store, entity: Entity) -> dict[str, Any]:
    pair = store.pair(entity.key)
    key = {"key": pair.seed if pair is not None else entity.key}
    return {"name": entity.name, "key": key, "token": entity.token}


def _seeds(store: Store, publics: Sequence[str]) -> list[dict[str, str]]:
    pairs = [store.pair(each) for each in publics]
    return [{"key": pair.seed} for pair in pairs if pair is not None]


@click.command()
@click.argument("name")
@click.argument(
    "file", metavar="INPUT", type=click.Path(exists=True, dir_okay=False, path_type=Path)
)
@_KEY
@command
@click.pass_obj
def restore(session: Session, name: str, file: Path, key: Path | None) -> None:
    """Restore the operator NAME with its accounts, users and keys from the file INPUT."""
    store = Store()
    store.place("operator", name)
    found = _read_backup(file, key)
    if found.get("name") != name:
        raise click.ClickException(f"{file} is a backup of operator {found.get('name')}")
    entries = list(_entries(store, found))
    for pair in _pairs(found):
        store.keep(pair)
    for entity, token in entries:
        write_private(entity.path, token, force=False)
    operator = entries[0][0]
    store.sign(operator, store.signer(operator.key))
    show(session, store, operator)


def _read_backup(path: Path, key: Path | None) -> dict[str, Any]:
    raw = read_input(path)
    try:
        if key is not None:
            curve = _curve(key)
            raw = curve.open(base64.b64decode(raw, validate=True), curve.public)
        found = json.loads(raw)
    except NkeyError as error:
        raise click.ClickException(f"{path}: {error}") from None
    except ValueError:
        hint = "" if key is not None else "; is it encrypted? See --key"
        raise click.ClickException(f"{path} is no backup of an operator{hint}") from None
    if not isinstance(found, dict):
        raise click.ClickException(f"{path} is no backup of an operator")
    return found


def _entries(store: Store, found: dict[str, Any]) -> list[tuple[Entity, str]]:
    """The entities of a backup, all checked before anything is written."""
    name = str(found.get("name"))
    result = [_restored(store, "operator", found)]
    for account in found.get("accounts") or ():
        result.append(_restored(store, "account", account, name))
        result += [
            _restored(store, "user", user, name, str(account["name"]))
            for user in account.get("users") or ()
        ]
    return result


def _restored(
    store: Store, kind: str, found: dict[str, Any], operator: str = "", account: str = ""
) -> tuple[Entity, str]:
    name, token = str(found.get("name", "")), str(found.get("token", ""))
    path = store.place(kind, name, operator, account)
    return Entity(kind, name, path, claims_of(token, kind)), token


def _pairs(found: dict[str, Any]) -> list[KeyPair]:
    keys = [found.get("key") or {}, *(found.get("signingKeys") or ())]
    seeds = [str(each.get("key", "")) for each in keys]
    try:
        pairs = [KeyPair.from_seed(seed) for seed in seeds if seed.startswith("S")]
    except NkeyError as error:
        raise click.ClickException(f"a key of {found.get('name')}: {error}") from None
    for inner in (*(found.get("accounts") or ()), *(found.get("users") or ())):
        pairs += _pairs(inner)
    return pairs
