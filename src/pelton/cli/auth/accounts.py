"""``pelton auth account``: add, edit, info, ls, and the limits of an account."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

import click

from pelton.cli.auth import choosing
from pelton.cli.auth.store import Entity, Store, new_pair
from pelton.cli.output import (
    limit,
    number,
    print_facts,
    print_json,
    print_names,
    print_table,
    size_limit,
)
from pelton.cli.prompts import ask, may_ask
from pelton.cli.session import Session, command
from pelton.cli.values import DURATION, SIZE, WHOLE, Word

if TYPE_CHECKING:
    from pelton.nkeys import KeyPair

F = TypeVar("F", bound=Callable[..., Any])

# option -> (place in "limits", meaning)
_NUMBERS = {
    "connections": ("conn", "At most so many connections."),
    "exports": ("exports", "At most so many exports."),
    "imports": ("imports", "At most so many imports."),
    "leafnodes": ("leaf", "At most so many leaf nodes."),
    "subscriptions": ("subs", "At most so many subscriptions."),
    "js_consumers": ("consumer", "At most so many consumers."),
    "js_max_pending": ("max_ack_pending", "At most so many unacknowledged messages."),
    "js_streams": ("streams", "At most so many streams."),
}
_SIZES = {
    "payload": ("payload", "Largest message."),
    "js_disk": ("disk_storage", "Disk that streams may use."),
    "js_disk_stream": ("disk_max_stream_bytes", "Disk that one stream may use."),
    "js_memory": ("mem_storage", "Memory that streams may use."),
    "js_memory_stream": ("mem_max_stream_bytes", "Memory that one stream may use."),
}
_JETSTREAM = ("disk_storage", "mem_storage", "streams", "consumer")
_UNLIMITED = dict.fromkeys(("subs", "data", "payload", "imports", "exports", "conn", "leaf"), -1)


def _limits(function: F) -> F:
    """The options for the limits and permissions of an account."""
    for name, (_, text) in reversed(_SIZES.items()):
        function = click.option(
            f"--{name.replace('_', '-')}", type=SIZE, help=f"{text} -1: no limit."
        )(function)
    for name, (_, text) in reversed(_NUMBERS.items()):
        function = click.option(
            f"--{name.replace('_', '-')}", type=WHOLE, help=f"{text} -1: no limit."
        )(function)
    for decorate in (
        click.option("--bearer/--no-bearer", default=None, help="Users without a signature."),
        click.option("--jetstream/--no-jetstream", default=None, help="With JetStream."),
        click.option(
            "--js-stream-size-required/--no-js-stream-size-required",
            default=None,
            help="Streams need a limit of bytes.",
        ),
        click.option(
            "--js-cluster-traffic",
            type=Word(("owner", "system")),
            help="Account of the traffic between copies.",
        ),
        click.option("--expiry", type=DURATION, help="How long the account is valid; 0 for ever."),
        choosing.TAGS,
    ):
        function = decorate(function)
    return function


def new_account(store: Store, operator: Entity, name: str) -> tuple[Entity, KeyPair]:
    """An account without limits and without JetStream; its key is kept, its JWT not yet signed."""
    path, pair = store.place("account", name, operator.name), new_pair("account")
    nats = {
        "limits": {**_UNLIMITED, "wildcards": True},
        "default_permissions": {"pub": {}, "sub": {}},
    }
    store.keep(pair)
    return Entity("account", name, path, {"sub": pair.public, "nats": nats}), pair


def _change(account: Entity, given: Mapping[str, Any]) -> None:
    """Set what options say."""
    limits = account.nats.setdefault("limits", {})
    if given["jetstream"]:
        for name in _JETSTREAM:
            limits[name] = limits.get(name) or -1
    for option, (place, _) in {**_NUMBERS, **_SIZES}.items():
        if given[option] is not None:
            limits[place] = given[option]
    if given["bearer"] is not None:
        limits["disallow_bearer"] = not given["bearer"]
    if given["js_stream_size_required"] is not None:
        limits["max_bytes_required"] = given["js_stream_size_required"]
    if given["js_cluster_traffic"] is not None:
        account.nats["cluster_traffic"] = given["js_cluster_traffic"]
    if given["jetstream"] is False:
        for place, _ in {**_NUMBERS, **_SIZES}.values():
            if place not in _UNLIMITED:
                limits.pop(place, None)
        limits.pop("max_bytes_required", None)
    expires(account, given["expiry"])


def expires(entity: Entity, validity_ns: int | None) -> None:
    """Let a JWT be valid for a time; 0 for ever, None changes nothing."""
    if validity_ns is None:
        return
    entity.claims.pop("exp", None)
    if validity_ns:
        entity.claims["exp"] = int(time.time()) + max(validity_ns // 10**9, 1)


@click.command()
@click.argument("name", default="")
@choosing.OPERATOR
@click.option("--key", default="", help="Public key of the operator to sign with.")
@click.option("--defaults", is_flag=True, help="Ask nothing.")
@_limits
@command
@click.pass_obj
def add(
    session: Session,
    /,
    name: str,
    operator: str,
    key: str,
    defaults: bool,
    tags: Sequence[str],
    **given: Any,
) -> None:
    """Make the account NAME. Numbers that are not given have no limit; JetStream is off."""
    store = Store()
    owner = choosing.operator_of(store, operator)
    if may_ask() and not defaults:
        name = name or ask("Name of the account", "NAME", "")
        _ask(given)
    signer = store.signer(key) if key else choosing.operator_signer(store, owner)
    account, _ = new_account(store, owner, name)
    _change(account, given)
    choosing.retagged(account, tags, ())
    store.sign(account, signer)
    show(session, store, owner, account)


def _ask(given: dict[str, Any]) -> None:
    for name, label in (
        ("connections", "Connections"),
        ("subscriptions", "Subscriptions"),
        ("leafnodes", "Leaf nodes"),
    ):
        if given[name] is None:
            given[name] = ask(f"{label} at most", f"--{name}", -1, int)
    if given["jetstream"] is None:
        given["jetstream"] = click.confirm("With JetStream (--jetstream)", default=False, err=True)
    if given["jetstream"]:
        for name, label in (("js_disk", "Disk"), ("js_memory", "Memory")):
            if given[name] is None:
                option = f"--{name.replace('_', '-')}"
                given[name] = ask(f"{label} that streams may use", option, "-1", SIZE)


@click.command()
@click.argument("name", default="")
@choosing.OPERATOR
@_limits
@choosing.NO_TAGS
@command
@click.pass_obj
def edit(
    session: Session,
    /,
    name: str,
    operator: str,
    tags: Sequence[str],
    no_tags: Sequence[str],
    **given: Any,
) -> None:
    """Change the account NAME; pelton auth account push tells the servers."""
    store = Store()
    owner = choosing.operator_of(store, operator)
    account = choosing.account_of(store, owner, name)
    _change(account, given)
    choosing.retagged(account, tags, no_tags)
    save(store, owner, account)
    show(session, store, owner, account)


def save(store: Store, operator: Entity, account: Entity) -> None:
    """Sign a changed account with the operator's key."""
    store.sign(account, choosing.operator_signer(store, operator))


@click.command()
@click.argument("name", default="")
@choosing.OPERATOR
@command
@click.pass_obj
def info(session: Session, name: str, operator: str) -> None:
    """Show the account NAME; with --json, the claims of its JWT."""
    store = Store()
    owner = choosing.operator_of(store, operator)
    show(session, store, owner, choosing.account_of(store, owner, name))


def show(session: Session, store: Store, operator: Entity, account: Entity) -> None:
    """Print an account."""
    if session.as_json:
        print_json(account.claims)
        return
    system = account.key == operator.nats.get("system_account")
    facts = [
        ("Key", account.key),
        ("Operator", operator.name),
        ("System account", "yes" if system else ""),
        ("Users", number(len(store.users(operator.name, account.name)))),
    ]
    print_facts(
        f"Account {account.name}",
        [*facts, *account_facts(account.claims), ("File", str(account.path))],
    )


def account_facts(claims: Mapping[str, Any]) -> list[tuple[str, str]]:
    """The claims of an account, as names and values."""
    from pelton.api.times import format_time

    nats: Mapping[str, Any] = claims.get("nats") or {}
    limits: Mapping[str, Any] = nats.get("limits") or {}
    on = any(limits.get(name) for name in ("disk_storage", "mem_storage"))
    tiers = limits.get("tiered_limits") or {}
    keys = nats.get("signing_keys") or ()
    exp = int(claims.get("exp") or 0)
    found = [
        ("Issuer", str(claims.get("iss", ""))),
        ("Signing keys", number(len(keys)) if keys else ""),
        ("Exports", number(len(nats.get("exports") or ()))),
        ("Imports", number(len(nats.get("imports") or ()))),
        ("Mappings", number(len(nats.get("mappings") or ()))),
        ("Revocations", number(len(nats.get("revocations") or ()))),
        ("Connections", limit(limits.get("conn", 0))),
        ("Leaf nodes", limit(limits.get("leaf", 0))),
        ("Subscriptions", limit(limits.get("subs", 0))),
        ("Payload", size_limit(limits.get("payload", 0))),
        ("Bearer tokens", "refused" if limits.get("disallow_bearer") else "allowed"),
        ("JetStream", "yes" if on or tiers else "no"),
        ("Tiers", ", ".join(tiers)),
    ]
    if on:
        found += [
            ("Disk", _storage(limits, "disk")),
            ("Memory", _storage(limits, "mem")),
            ("Streams", limit(limits.get("streams", 0))),
            ("Consumers", limit(limits.get("consumer", 0))),
        ]
    found += [
        ("Tags", ", ".join(nats.get("tags") or ())),
        ("Expires", format_time(exp * 10**9) if exp else ""),
    ]
    return found


def _storage(limits: Mapping[str, Any], kind: str) -> str:
    value = limits.get(f"{kind}_storage") or 0
    return "none" if value == 0 else size_limit(value)


@click.command()
@click.argument("operator", default="")
@click.option("--names", is_flag=True, help="Only the names.")
@command
@click.pass_obj
def ls(session: Session, operator: str, names: bool) -> None:
    """List the accounts of the OPERATOR."""
    store = Store()
    owner = choosing.operator_of(store, operator)
    found = [store.account(owner.name, each) for each in store.accounts(owner.name)]
    if names:
        print_names(session, [each.name for each in found])
        return
    rows = []
    for each in found:
        limits = each.nats.get("limits") or {}
        rows.append(
            {
                "name": each.name,
                "key": each.key,
                "users": len(store.users(owner.name, each.name)),
                "jetstream": bool(limits.get("disk_storage") or limits.get("mem_storage")),
                "system": each.key == owner.nats.get("system_account"),
            }
        )
    if session.as_json:
        print_json(rows)
        return
    cells = [
        (
            str(row["name"]),
            str(row["key"]),
            str(row["users"]),
            "yes" if row["jetstream"] else "",
            "yes" if row["system"] else "",
        )
        for row in rows
    ]
    columns = ("Name", "Key", "Users", "JetStream", "System")
    print_table(columns, cells, right=frozenset(("Users",)))
