"""``pelton auth user``: who connects, and with which credentials file."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

import click

from pelton.cli.auth import choosing
from pelton.cli.auth.accounts import expires, save
from pelton.cli.auth.store import Entity, Store, new_pair, signed, write_private
from pelton.cli.output import limit, print_facts, print_json, print_names, print_table, size_limit
from pelton.cli.prompts import ask, confirm, may_ask
from pelton.cli.session import Session, command
from pelton.cli.values import DURATION, SIZE, WHOLE, Word
from pelton.core.base.quoting import shown
from pelton.nkeys import KeyPair, format_credentials

F = TypeVar("F", bound=Callable[..., Any])

CONNECTIONS = {
    "nats": "STANDARD",
    "ws": "WEBSOCKET",
    "leaf": "LEAFNODE",
    "wsleaf": "LEAFNODE_WS",
    "mqtt": "MQTT",
    "mqttws": "MQTT_WS",
    "inprocess": "IN_PROCESS",
}
_PERMISSIONS = {
    "pub_allow": ("pub", "allow", "May publish to this subject."),
    "pub_deny": ("pub", "deny", "May not publish to this subject."),
    "sub_allow": ("sub", "allow", "May subscribe to this subject."),
    "sub_deny": ("sub", "deny", "May not subscribe to this subject."),
}


def permissions(function: F) -> F:
    """The options for a user's permissions; also for scoped signing keys."""
    for name, (_, _, text) in reversed(_PERMISSIONS.items()):
        function = click.option(
            f"--{name.replace('_', '-')}", multiple=True, metavar="SUBJECT", help=text
        )(function)
    for decorate in (
        click.option(
            "--subscriptions", type=WHOLE, help="At most so many subscriptions; -1: no limit."
        ),
        click.option("--payload", type=SIZE, help="Largest message; -1: no limit."),
        click.option("--data", type=SIZE, help="At most so many bytes; -1: no limit."),
        click.option(
            "--bearer/--no-bearer", default=None, help="The JWT is enough, without a signature."
        ),
        click.option("--locale", help="Time zone of the hours when the user may connect."),
        click.option("--source", multiple=True, metavar="CIDR", help="Network to connect from."),
        click.option(
            "--hours", multiple=True, metavar="HH:MM:SS-HH:MM:SS", help="When to connect."
        ),
        click.option("--responses", type=WHOLE, help="May publish so many answers to a request."),
        click.option(
            "--connection",
            type=Word(list(CONNECTIONS)),
            multiple=True,
            help="Kinds of connections.",
        ),
    ):
        function = decorate(function)
    return function


def change(nats: dict[str, Any], given: Mapping[str, Any]) -> None:
    """Set the options of `permissions`; UsageError for hours that can't be read."""
    for option, (kind, rule, _) in _PERMISSIONS.items():
        if given[option]:
            nats.setdefault(kind, {})[rule] = list(given[option])
    for option, place in (("subscriptions", "subs"), ("payload", "payload"), ("data", "data")):
        if given[option] is not None:
            nats[place] = given[option]
    if given["bearer"] is not None:
        nats["bearer_token"] = given["bearer"]
    if given["locale"] is not None:
        nats["times_location"] = given["locale"]
    if given["source"]:
        nats["src"] = list(given["source"])
    if given["hours"]:
        nats["times"] = [_hours(each) for each in given["hours"]]
    if given["responses"] is not None:
        nats["resp"] = {"max": given["responses"], "ttl": 0}
    if given["connection"]:
        nats["allowed_connection_types"] = [CONNECTIONS[each] for each in given["connection"]]


def _hours(text: str) -> dict[str, str]:
    start, dash, end = text.partition("-")
    if not dash:
        raise click.BadParameter(f'"{text}" is not HH:MM:SS-HH:MM:SS', param_hint="--hours")
    return {"start": start, "end": end}


def new_template() -> dict[str, Any]:
    """The permissions and limits of a user that may do everything."""
    return {"pub": {}, "sub": {}, "subs": -1, "data": -1, "payload": -1}


@click.command()
@click.argument("name")
@click.argument("account", default="")
@choosing.OPERATOR
@click.option(
    "--key", default="", help="Signing key of the account to sign with: its role or itself."
)
@click.option(
    "--credential", type=click.Path(dir_okay=False, path_type=Path), help="Write a .creds file."
)
@click.option("--expire", type=DURATION, help="How long the user is valid; 0 for ever.")
@click.option("--defaults", is_flag=True, help="Ask nothing.")
@choosing.FORCE
@permissions
@choosing.TAGS
@command
@click.pass_obj
def add(
    session: Session,
    /,
    name: str,
    account: str,
    operator: str,
    key: str,
    credential: Path | None,
    expire: int | None,
    defaults: bool,
    force: bool,
    tags: Sequence[str],
    **given: Any,
) -> None:
    """Make the user NAME in ACCOUNT. With --key of a scoped signing key, that key has the permissions."""
    store = Store()
    owner = choosing.operator_of(store, operator)
    home = choosing.account_of(store, owner, account)
    path = store.place("user", name, owner.name, home.name)
    if credential is not None and credential.exists() and not force:
        raise click.ClickException(f"{credential} already exists; --force replaces it")
    signer, scoped = account_signer(store, home, key)
    if scoped and any(value not in (None, ()) for value in given.values()):
        raise click.UsageError(
            "the scoped signing key sets permissions and limits; leave out their options"
        )
    if not scoped and not defaults and may_ask():
        _ask(given)
    pair = new_pair("user")
    nats = {"pub": {}, "sub": {}} if scoped else new_template()
    user = Entity("user", name, path, {"sub": pair.public, "nats": nats})
    change(user.nats, given)
    choosing.retagged(user, tags, ())
    expires(user, expire)
    if signer.public != home.key:
        user.nats["issuer_account"] = home.key
    store.keep(pair)
    token = store.sign(user, signer)
    if credential is not None:
        write_private(credential, format_credentials(token, pair.seed), force=force)
    show(session, owner, home, user)


def _ask(given: dict[str, Any]) -> None:
    if given["payload"] is None:
        given["payload"] = ask("Largest message", "--payload", "-1", SIZE)
    if given["subscriptions"] is None:
        given["subscriptions"] = ask("Subscriptions at most", "--subscriptions", -1, int)


def account_signer(store: Store, account: Entity, key: str) -> tuple[KeyPair, bool]:
    """The key that signs users, named by its role or itself; and whether it has their permissions."""
    if not key or key == account.key:
        return store.signer(account.key), False
    for each in account.nats.get("signing_keys") or ():
        if isinstance(each, str):
            if each == key:
                return store.signer(each), False
        elif key in (each.get("key"), each.get("role")):
            return store.signer(each["key"]), True
    raise click.ClickException(f"the account {account.name} has no signing key {key}")


@click.command()
@click.argument("name", default="")
@click.argument("account", default="")
@choosing.OPERATOR
@click.option(
    "--credential", type=click.Path(dir_okay=False, path_type=Path), help="Write a .creds file."
)
@click.option("--expire", type=DURATION, help="How long the user is valid; 0 for ever.")
@choosing.FORCE
@permissions
@choosing.TAGS
@choosing.NO_TAGS
@command
@click.pass_obj
def edit(
    session: Session,
    /,
    name: str,
    account: str,
    operator: str,
    credential: Path | None,
    expire: int | None,
    force: bool,
    tags: Sequence[str],
    no_tags: Sequence[str],
    **given: Any,
) -> None:
    """Change the user NAME of ACCOUNT. Existing credentials files do not change."""
    store = Store()
    owner, home, user = _found(store, operator, account, name)
    if is_scoped(home, user) and any(value not in (None, ()) for value in given.values()):
        raise click.ClickException(
            "the user's scoped signing key sets permissions and limits; they cannot be changed here"
        )
    change(user.nats, given)
    choosing.retagged(user, tags, no_tags)
    expires(user, expire)
    token = store.sign(user, store.signer(str(user.claims.get("iss"))))
    if credential is not None:
        text = format_credentials(token, store.signer(user.key).seed)
        write_private(credential, text, force=force)
    show(session, owner, home, user)


def _found(store: Store, operator: str, account: str, name: str) -> tuple[Entity, Entity, Entity]:
    owner = choosing.operator_of(store, operator)
    home = choosing.account_of(store, owner, account)
    return owner, home, choosing.user_of(store, owner, home, name)


def is_scoped(account: Entity, user: Entity) -> bool:
    """Whether the key that signed the user has its permissions."""
    keys = account.nats.get("signing_keys") or ()
    return any(
        isinstance(each, dict) and each.get("key") == user.claims.get("iss") for each in keys
    )


@click.command()
@click.argument("name", default="")
@click.argument("account", default="")
@choosing.OPERATOR
@command
@click.pass_obj
def info(session: Session, name: str, account: str, operator: str) -> None:
    """Show the user NAME of ACCOUNT; with --json, the claims of its JWT."""
    show(session, *_found(Store(), operator, account, name))


def show(session: Session, operator: Entity, account: Entity, user: Entity) -> None:
    """Print a user."""
    if session.as_json:
        print_json(user.claims)
        return
    scoped = is_scoped(account, user)
    facts = [
        ("Key", user.key),
        ("Account", f"{account.name} {account.key}"),
        ("Operator", operator.name),
        ("Scoped", "yes" if scoped else "no"),
        *user_facts(user.claims, scoped=scoped),
        ("File", str(user.path)),
    ]
    print_facts(f"User {user.name}", facts)


def user_facts(claims: Mapping[str, Any], *, scoped: bool) -> list[tuple[str, str]]:
    """The claims of a user, as names and values."""
    from pelton.api.times import format_time

    nats: Mapping[str, Any] = claims.get("nats") or {}
    exp = int(claims.get("exp") or 0)
    return [
        ("Issuer", str(claims.get("iss", ""))),
        *([] if scoped else permission_facts(nats)),
        ("Tags", ", ".join(nats.get("tags") or ())),
        ("Expires", format_time(exp * 10**9) if exp else ""),
    ]


def permission_facts(nats: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Permissions and limits, as names and values."""
    found = [
        (
            f"May {'not ' if rule == 'deny' else ''}{verb}",
            ", ".join((nats.get(kind) or {}).get(rule) or ()),
        )
        for kind, verb in (("pub", "publish to"), ("sub", "subscribe to"))
        for rule in ("allow", "deny")
    ]
    times = [f"{each['start']}-{each['end']}" for each in nats.get("times") or ()]
    sources = nats.get("src") or ()
    return [
        *found,
        ("Answers", str((nats.get("resp") or {}).get("max") or "")),
        ("Subscriptions", limit(nats.get("subs", 0))),
        ("Payload", size_limit(nats.get("payload", 0))),
        ("Bearer token", "yes" if nats.get("bearer_token") else "no"),
        ("Connections", ", ".join(nats.get("allowed_connection_types") or ())),
        ("From", sources if isinstance(sources, str) else ", ".join(sources)),
        ("Hours", " ".join([*times, nats.get("times_location") or ""]).strip()),
    ]


@click.command()
@click.argument("account", default="")
@choosing.OPERATOR
@click.option("--names", is_flag=True, help="Only the names.")
@command
@click.pass_obj
def ls(session: Session, account: str, operator: str, names: bool) -> None:
    """List the users of ACCOUNT."""
    store = Store()
    owner = choosing.operator_of(store, operator)
    home = choosing.account_of(store, owner, account)
    found = [store.user(owner.name, home.name, each) for each in store.users(owner.name, home.name)]
    if names:
        print_names(session, [each.name for each in found])
        return
    if session.as_json:
        print_json([{**each.claims, "scoped": is_scoped(home, each)} for each in found])
        return
    rows = []
    for each in found:
        scoped = is_scoped(home, each)
        rules = [_count(each.nats.get(kind) or {}) for kind in ("sub", "pub")]
        rows.append(
            (each.name, each.key, "yes" if scoped else "", *(["", ""] if scoped else rules))
        )
    print_table(("Name", "Key", "Scoped", "Subscribe rules", "Publish rules"), rows)


def _count(rules: Mapping[str, Any]) -> str:
    return str(len(rules.get("allow") or ()) + len(rules.get("deny") or ()))


@click.command()
@click.argument("name", default="")
@click.argument("account", default="")
@choosing.OPERATOR
@click.option("--revoke", is_flag=True, help="Also let servers refuse it, after a push.")
@choosing.FORCE
@command
@click.pass_obj
def rm(session: Session, name: str, account: str, operator: str, revoke: bool, force: bool) -> None:
    """Remove the user NAME of ACCOUNT. Servers still take its credentials without --revoke."""
    store = Store()
    owner, home, user = _found(store, operator, account, name)
    if not force:
        confirm(f"Really remove user {user.name} of account {home.name}?")
    if revoke:
        home.nats.setdefault("revocations", {})[user.key] = int(time.time())
        save(store, owner, home)
    user.path.unlink()
    store.forget(user.key)
    if session.as_json:
        print_json({"removed": user.name, "key": user.key, "revoked": revoke})
        return
    print(shown(f"removed user {user.name}"))
    if revoke:
        print(shown(f"pelton auth account push {home.name} tells the servers"))


@click.command()
@click.argument("file", type=click.Path(dir_okay=False, path_type=Path))
@click.argument("name", default="")
@click.argument("account", default="")
@choosing.OPERATOR
@click.option("--expire", type=DURATION, help="How long the credentials are valid.")
@choosing.FORCE
@command
@click.pass_obj
def credential(
    session: Session,
    file: Path,
    name: str,
    account: str,
    operator: str,
    expire: int | None,
    force: bool,
) -> None:
    """Write the credentials of the user NAME of ACCOUNT to FILE."""
    store = Store()
    _, _, user = _found(store, operator, account, name)
    pair = store.signer(user.key)
    token = user.token
    if expire is not None:
        expires(user, expire)
        token = signed(user, store.signer(str(user.claims.get("iss"))))
    write_private(file, format_credentials(token, pair.seed), force=force)
    if session.as_json:
        print_json({"user": user.name, "file": str(file), "expires": user.claims.get("exp")})
    else:
        print(shown(f"wrote the credentials of {user.name} to {file}"))
