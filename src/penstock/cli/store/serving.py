"""``--store DIR`` of the commands that only read: they ask a store folder or a backup instead of a server.

The commands ask the same questions with the same client; a server of this process answers them
(``penstock.embedded.stored``). So each is written once, and none can change what is stored.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import click

from penstock.cli.session import Session

if TYPE_CHECKING:
    from penstock.embedded.stored import StoredServer

PATH = "store_path"
"""The name of the parameter: some commands have one that is called ``store`` already."""


def take_options(command: click.Command) -> None:
    """Give a command the options; nothing happens when it has them."""
    if any(each.name == PATH for each in command.params):
        return
    command.params += [
        click.Option(
            ["--store", PATH],
            type=click.Path(),
            metavar="PATH",
            expose_value=False,
            is_eager=True,
            callback=_set("store"),
            help="Read this store folder or backup, without a server.",
        ),
        click.Option(
            ["--account", "store_account"],
            metavar="NAME",
            expose_value=False,
            is_eager=True,
            callback=_set("store_account"),
            help="With --store: the account of the streams.",
        ),
        click.Option(
            ["--backup", "store_backup"],
            metavar="ID",
            expose_value=False,
            is_eager=True,
            callback=_set("store_backup"),
            help="With --store: not the newest backup of the folder.",
        ),
    ]


def _set(field: str) -> Any:
    def callback(ctx: click.Context, parameter: click.Parameter, value: str | None) -> None:
        session = ctx.find_object(Session)
        if value is not None and session is not None:
            setattr(session, field, value)

    return callback


def serve(session: Session) -> StoredServer:
    """The server of the streams that ``--store`` names; it ends with the command.

    Raises NotStoredError, StoreError, VaultError, OSError.
    """
    from penstock.cli.store.session import key_of_store, more_files
    from penstock.embedded.stored import StoredServer

    more_files()
    server = StoredServer(
        session.store,
        account=session.store_account,
        domain=session.domain,
        backup=session.store_backup,
        key=key_of_store(),
    )
    context = click.get_current_context(silent=True)
    if context is not None:
        context.find_root().call_on_close(server.close)
    return server


def is_backup(path: str) -> bool:
    """Whether there is a backup, which only the server of ``serve`` reads, and no store folder."""
    return not any(
        each.name == "jetstream" or each.name.startswith("domain_") for each in os.scandir(path)
    )
