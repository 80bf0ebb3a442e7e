"""``pelton account``."""

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import click

from pelton.cli.output import (
    as_data,
    duration,
    limit,
    number,
    print_facts,
    print_json,
    size,
    size_limit,
)
from pelton.cli.session import Session, command

if TYPE_CHECKING:
    from pelton.client.sync import Client


@click.command()
@command
@click.pass_obj
def info(session: Session) -> None:
    """Show the usage and the limits of the account."""
    from pelton.errors import JetStreamDisabledError, NoRespondersError

    with session.connect() as client:
        server = client.server_info
        user = _user(client)
        rtt = client.rtt()
        try:
            found = session.jetstream(client).account_info()
        except (JetStreamDisabledError, NoRespondersError):
            if session.as_json:
                raise
            found = None
    if session.as_json and found is not None:
        print_json(as_data(found))
        return
    facts = [
        ("User", _named(user, "user")),
        ("Account", _named(user, "account")),
        ("Expires", duration(int(user.get("expires") or 0))),
        ("Client", f"{server.client_id} from {server.client_ip}"),
        ("Round trip", f"{rtt * 1e3:.2f} ms"),
        ("TLS", "yes" if server.tls_required else "no"),
        ("Largest message", size(server.max_payload)),
    ]
    if found is None:
        facts.append(("JetStream", "no"))
        print_facts(f"Account on {server.server_name}", facts)
        return
    limits = found.limits
    print_facts(
        f"Account on {server.server_name}",
        [
            *facts,
            ("Server", f"{server.version} at {server.host}:{server.port}"),
            ("Domain", found.domain),
            ("Memory", f"{size(found.memory)} of {size_limit(limits.max_memory)}"),
            ("Storage", f"{size(found.storage)} of {size_limit(limits.max_storage)}"),
            ("Streams", f"{number(found.streams)} of {limit(limits.max_streams)}"),
            ("Consumers", f"{number(found.consumers)} of {limit(limits.max_consumers)}"),
            ("API calls", f"{number(found.api.total)}, {number(found.api.errors)} with errors"),
            ("API level", str(found.api.level)),
        ],
    )


def _user(client: "Client") -> dict[str, Any]:
    """The server's answer about the user; nothing without an answer."""
    from pelton.errors import PeltonError

    try:
        answer = json.loads(client.request("$SYS.REQ.USER.INFO", b"", timeout=1).data)
    except (PeltonError, ValueError):
        return {}
    found: dict[str, Any] = answer.get("data") or {}
    return found


def _named(user: Mapping[str, Any], kind: str) -> str:
    name, key = user.get(f"{kind}_name"), str(user.get(kind) or "")
    return f"{name} ({key})" if name and name != key else key
