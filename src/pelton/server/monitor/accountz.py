"""/accountz: the names of the accounts, or the details of one account."""

from typing import Any

import msgspec

from pelton.api.times import format_time
from pelton.server.accounts.registry import ServerAccount
from pelton.server.accounts.sharing import Exports
from pelton.server.monitor.accstatz import connections_by_account
from pelton.server.monitor.encoding import present
from pelton.server.monitor.query import Query, QueryError
from pelton.server.monitor.server_state import (
    ServerState,
    engine_account,
    leaf_of,
    tag_of,
)
from pelton.server.monitor.slices import Pace, Slices, each_of
from pelton.server.monitor.subsz import statistics
from pelton.server.settings.accounts import SINGLETON, STREAMED, Export, Import, Mapping
from pelton.server.units import SECOND_NS

_DOMAIN_CALLS = (
    *("$KV.>", "$OBJ.>", "ACCOUNT.>", "CONSUMER.>", "DIRECT.>", "INFO", "META.>", "SERVER.>"),
    "STREAM.>",
)
_SYSTEM_SERVICES = {
    "$SYS.REQ.ACCOUNT.*.CONNZ": STREAMED,
    "$SYS.REQ.ACCOUNT.*.STATZ": STREAMED,
    "$SYS.REQ.USER.*.INFO": SINGLETON,
    "$SYS.DEBUG.SUBSCRIBERS": SINGLETON,
}


class Options(msgspec.Struct):
    """The account; empty: list the names."""

    account: str = ""


def from_query(query: Query) -> Options:
    """Any text is accepted."""
    return Options(account=query.text("acc"))


def report(server_state: ServerState, options: Options) -> Slices[dict[str, Any]]:
    """The names, or one account. QueryError when there is no such account."""
    body: dict[str, Any] = {
        "server_id": server_state.server_id,
        "now": format_time(server_state.now_ns),
        "system_account": server_state.system_account,
    }
    if not options.account:
        return body | present(accounts=[each.name for each in server_state.accounts()])
    return body | {"account_detail": (yield from details(server_state, options.account))}


def details(server_state: ServerState, name: str) -> Slices[dict[str, Any]]:
    """The details of one account. Raises QueryError."""
    account = server_state.account(name)
    if account is None:
        raise QueryError(f"Account {name} does not exist")
    pace = Pace()
    connections = connections_by_account(server_state).get(name, [])
    leafs = sum(leaf_of(each) is not None for each in connections)
    body: dict[str, Any] = {
        "account_name": name,
        "update_time": format_time(account.settings.updated_ns or server_state.start_ns),
    }
    body |= present(is_system=name == server_state.system_account)
    body |= {
        "expired": account.expired,
        "complete": True,
        "jetstream_enabled": engine_account(server_state, name) is not None,
        "leafnode_connections": leafs,
        "client_connections": len(connections) - leafs,
        "subscriptions": account.router.subscription_count(),
    }
    settings = account.settings
    exporters = {each.account for each in settings.imports}
    exports = {
        each.name: Exports(each.settings.exports)
        for each in server_state.accounts()
        if each.name in exporters
    }
    yield
    imports = yield from each_of(settings.imports, lambda each: _import(each, exports), pace, 5)
    exported = yield from each_of(settings.exports, _export, pace, 3)
    listed = sorted(settings.mappings, key=lambda mapping: mapping.subject)
    mappings = yield from each_of(listed, lambda each: (each.subject, _targets(each)), pace, 5)
    shown = dict(sorted([*_domain_mappings(server_state, name), *mappings]))
    body |= present(
        mappings=shown,
        exports=exported + _exports(server_state, name),
        imports=imports + _imports(server_state, account),
    )
    body |= present(
        jwt=settings.jwt,
        issuer_key=settings.issuer_key,
        name_tag=tag_of(account),
        tags=settings.tags,
        decoded_jwt=_claims(settings.jwt),
        revoked_user=dict(
            (yield from each_of(settings.revoked_users.items(), _time, pace, 3)),
        ),
    )
    body["sublist_stats"] = statistics([account.router])
    return body


def _claims(token: str) -> dict[str, Any]:
    if not token:
        return {}
    from pelton.server.auth.shown_claims import account_claims

    return account_claims(token)


def _domain_mappings(
    server_state: ServerState, name: str
) -> list[tuple[str, list[dict[str, Any]]]]:
    """The subjects with this server's JetStream domain, and the ones that they stand for."""
    domain = server_state.settings.domain
    if not domain or server_state.jetstream() is None:
        return []
    calls = (">",) if name == server_state.system_account else _DOMAIN_CALLS
    return [
        (
            f"$JS.{domain}.API.{call}",
            [{"subject": call if call.startswith("$") else f"$JS.API.{call}", "weight": 100}],
        )
        for call in calls
    ]


def _exports(server_state: ServerState, name: str) -> list[dict[str, Any]]:
    """For the system account: the services that every account can request."""
    if name != server_state.system_account:
        return []
    served = dict(_SYSTEM_SERVICES)
    if server_state.jetstream() is not None:
        served["$JS.API.>"] = SINGLETON
    return [
        {"subject": subject, "type": "service", "response_type": response}
        for subject, response in served.items()
    ]


def _imports(server_state: ServerState, account: ServerAccount) -> list[dict[str, Any]]:
    """The services that an account imports from the system account."""
    name = account.name
    if name == server_state.system_account:
        return [
            _service(server_state, f"$SYS.REQ.USER.{name}.INFO", "$SYS.REQ.USER.INFO", share=True)
        ]
    own = f"$SYS.REQ.ACCOUNT.{name}"
    rows = [
        _service(server_state, f"{own}.CONNZ", "$SYS.REQ.ACCOUNT.PING.CONNZ", share=False),
        _service(server_state, f"{own}.CONNZ", "$SYS.REQ.SERVER.PING.CONNZ", share=False),
        _service(server_state, f"{own}.STATZ", "$SYS.REQ.ACCOUNT.PING.STATZ", share=False),
        _service(server_state, f"$SYS.REQ.USER.{name}.INFO", "$SYS.REQ.USER.INFO", share=True),
    ]
    if server_state.jetstream() is not None:
        rows.append(_service(server_state, "$JS.API.>", "$JS.API.>", share=True))
    return rows


def _service(server_state: ServerState, there: str, here: str, *, share: bool) -> dict[str, Any]:
    return {
        "subject": there,
        "account": server_state.system_account,
        "to": here,
        "local_subject": here,
        "type": "service",
        "invalid": False,
        "share": share,
        "tracking": False,
    }


def _export(export: Export) -> dict[str, Any]:
    row: dict[str, Any] = {
        "subject": export.subject,
        "type": "service" if export.service else "stream",
    }
    row |= present(token_req=export.token_required)
    if export.service:
        row |= {"response_type": export.response}
        row |= present(service_latency=_latency(export))
    return row | present(
        approved_accounts=export.accounts,
        revoked_activations=_times(export.revoked),
    )


def _times(revoked: dict[str, int]) -> dict[str, str]:
    return dict(map(_time, revoked.items()))


def _time(revoked: tuple[str, int]) -> tuple[str, str]:
    user_key, until = revoked
    return user_key, format_time(until * SECOND_NS)


def _latency(export: Export) -> dict[str, Any]:
    found = export.latency
    if found is None:
        return {}
    return {"sampling": found.sampling or "headers", "results": found.subject}


def _import(wanted: Import, exports: dict[str, Exports]) -> dict[str, Any]:
    row: dict[str, Any] = {"subject": wanted.subject, "account": wanted.account}
    row |= present(to=wanted.local if wanted.service else "")
    row |= {
        "local_subject": wanted.local,
        "type": "service" if wanted.service else "stream",
        "invalid": False,
        "share": wanted.share and wanted.service,
        "tracking": False,
    }
    if wanted.service:
        exporter = exports.get(wanted.account)
        found = exporter.wider(wanted.subject, True) if exporter is not None else None
        row |= present(latency=_latency(found) if found else None)
    return row


def _targets(mapping: Mapping) -> list[dict[str, Any]]:
    """The destinations of a mapping with cumulated weights, the lightest first."""
    found = [(each.weight, each.subject, each.cluster) for each in mapping.targets]
    rest = 100 - sum(weight for weight, _, _ in found)
    if rest > 0 and mapping.subject not in {subject for _, subject, _ in found}:
        found.append((rest, mapping.subject, ""))
    rows, sum_of = [], 0
    for weight, subject, cluster in sorted(found, key=lambda each: each[0]):
        sum_of += weight
        rows.append({"subject": subject, "weight": sum_of} | present(cluster=cluster))
    return rows
