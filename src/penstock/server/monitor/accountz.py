"""/accountz: the names of the accounts, or all of one of them."""

from typing import Any

import msgspec

from penstock.api.times import format_time
from penstock.server.monitor.accstatz import connections_by_account, is_leaf
from penstock.server.monitor.facts import SYSTEM_ACCOUNT, AccountFacts, Facts, engine_account
from penstock.server.monitor.form import present
from penstock.server.monitor.query import Query, QueryError
from penstock.server.monitor.subsz import statistics


class Options(msgspec.Struct):
    """Which one; empty: their names."""

    account: str = ""


def from_query(query: Query) -> Options:
    """Any text."""
    return Options(account=query.text("acc"))


def report(facts: Facts, options: Options) -> dict[str, Any]:
    """QueryError: there is no such account."""
    body: dict[str, Any] = {
        "server_id": facts.server_id,
        "now": format_time(facts.now_ns),
        "system_account": SYSTEM_ACCOUNT,
    }
    if not options.account:
        return body | present(accounts=[each.name for each in facts.accounts()])
    return body | {"account_detail": details(facts, options.account)}


def details(facts: Facts, name: str) -> dict[str, Any]:
    """One account; QueryError."""
    account = facts.account(name)
    if account is None:
        raise QueryError(f"Account {name} does not exist")
    connections = connections_by_account(facts).get(name, [])
    leafs = sum(is_leaf(each) for each in connections)
    body: dict[str, Any] = {
        "account_name": name,
        "update_time": format_time(getattr(account, "updated_ns", 0) or facts.start_ns),
    }
    body |= present(is_system=name == SYSTEM_ACCOUNT)
    body |= {
        "expired": bool(getattr(account, "expired", False)),
        "complete": True,
        "jetstream_enabled": engine_account(facts, name) is not None,
        "leafnode_connections": leafs,
        "client_connections": len(connections) - leafs,
        "subscriptions": account.router.subscription_count(),
    }
    body |= present(imports=_imports(facts, account))
    body |= present(
        jwt=getattr(account, "jwt", ""),
        issuer_key=getattr(account, "issuer_key", ""),
        name_tag=getattr(account, "tag", "") or name,
        tags=list(getattr(account, "tags", ())),
    )
    body["sublist_stats"] = statistics([account.router])
    return body


def _imports(facts: Facts, account: AccountFacts) -> list[dict[str, Any]]:
    """The services of the system account that every account reaches."""
    name = account.name
    if name == SYSTEM_ACCOUNT:
        return []
    own = f"$SYS.REQ.ACCOUNT.{name}"
    rows = [
        _service(f"{own}.CONNZ", "$SYS.REQ.ACCOUNT.PING.CONNZ", share=False),
        _service(f"{own}.CONNZ", "$SYS.REQ.SERVER.PING.CONNZ", share=False),
        _service(f"{own}.STATZ", "$SYS.REQ.ACCOUNT.PING.STATZ", share=False),
        _service(f"$SYS.REQ.USER.{name}.INFO", "$SYS.REQ.USER.INFO", share=True),
    ]
    if engine_account(facts, name) is not None:
        rows.append(_service("$JS.API.>", "$JS.API.>", share=True))
    return rows


def _service(there: str, here: str, *, share: bool) -> dict[str, Any]:
    return {
        "subject": there,
        "account": SYSTEM_ACCOUNT,
        "to": here,
        "local_subject": here,
        "type": "service",
        "invalid": False,
        "share": share,
        "tracking": False,
    }
