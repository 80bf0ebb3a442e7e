"""What all commands share: how to reach the server, and whether the output is for a program."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

import click

if TYPE_CHECKING:
    from penstock.client.blocking import BlockingClient
    from penstock.client.blocking_jetstream import JetStream

F = TypeVar("F", bound=Callable[..., object])


@dataclass
class Session:
    """The options before the command; `as_json` may also come after it."""

    server: str
    user: str
    password: str
    token: str
    creds: str
    nkey: str
    domain: str
    timeout: int  # nanoseconds
    as_json: bool

    def connect(self) -> BlockingClient:
        """A client, which the caller closes; ConnectError, ValueError."""
        from penstock.client.blocking import connect_blocking

        seconds = self.timeout / 1e9
        return connect_blocking(
            self.server,
            name="penstock",
            user=self.user,
            password=self.password,
            token=self.token,
            creds=self.creds,
            nkey=self.nkey,
            timeout=seconds,
            connect_timeout=seconds,
            reconnect=False,
        )

    def jetstream(self, client: BlockingClient) -> JetStream:
        """The JetStream of the domain that was asked for."""
        return client.jetstream(domain=self.domain or None)


def command(function: F) -> F:
    """Options that every command has: ``--json``."""
    option = click.option(
        "--json",
        is_flag=True,
        expose_value=False,
        callback=_set_json,
        help="Print JSON instead of tables.",
    )
    return option(function)


def _set_json(ctx: click.Context, parameter: click.Parameter, value: bool) -> None:
    if value:
        ctx.find_object(Session).as_json = True  # type: ignore[union-attr]  # set by the top
