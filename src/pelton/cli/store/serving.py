"""``--store DIR`` of the commands that only read: they ask a store folder or a backup instead of a server.

The commands ask the same questions with the same client; a server of this process answers them
(``pelton.embedded.stored``). So each is written once, and none can change the stored data.
"""

from __future__ import annotations

from typing import Any

import click

from pelton.cli.session import Session

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
