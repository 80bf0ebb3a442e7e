"""``penstock account``."""

import click

from penstock.cli.output import as_data, limit, number, print_facts, print_json, size, size_limit
from penstock.cli.session import Session, command


@click.command()
@command
@click.pass_obj
def info(session: Session) -> None:
    """Show the usage and the limits of the account."""
    with session.connect() as client:
        server = client.server_info
        found = session.jetstream(client).account_info()
    if session.as_json:
        print_json(as_data(found))
        return
    limits = found.limits
    print_facts(
        f"Account on {server.server_name}",
        [
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
