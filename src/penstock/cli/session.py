"""The options that all commands share: how to connect, and the form of the output."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

import click

if TYPE_CHECKING:
    from penstock.client.blocking import BlockingClient
    from penstock.client.blocking.jetstream import JetStream
    from penstock.client.options import TlsOptions

F = TypeVar("F", bound=Callable[..., object])


@dataclass
class Session:
    """The options before the command; `as_json` may also follow it."""

    server: str
    user: str
    password: str
    token: str
    creds: str
    nkey: str
    tlscert: str
    tlskey: str
    tlsca: str
    tlsfirst: bool
    domain: str
    timeout: int  # nanoseconds
    as_json: bool

    def connect(self, *, lasting: bool = False) -> BlockingClient:
        """A client, which the caller closes; raises ConnectError, ValueError.

        A ``lasting`` client connects again, for ever, when its connection breaks.
        """
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
            tls=self._tls(),
            timeout=seconds,
            connect_timeout=seconds,
            reconnect=lasting,
            reconnect_attempts_max=-1,
        )

    def _tls(self) -> TlsOptions | None:
        if not (self.tlscert or self.tlskey or self.tlsca or self.tlsfirst):
            return None
        from penstock.client.options import TlsOptions

        if bool(self.tlscert) != bool(self.tlskey):
            raise click.UsageError("--tlscert and --tlskey go together")
        return TlsOptions(
            ca_file=self.tlsca or None,
            cert_file=self.tlscert or None,
            key_file=self.tlskey or None,
            first=self.tlsfirst,
        )

    def jetstream(self, client: BlockingClient) -> JetStream:
        """The JetStream of the requested domain."""
        return client.jetstream(domain=self.domain or None)


OFFLINE = click.option("--offline", is_flag=True, help="Also if it cannot be read now.")
_OFFLINE_CODES = (10118, 10119, 10194, 10195)


def check_readable(look: Callable[[], object], name: str, offline: bool) -> None:
    """Check before a removal that the server can read the stream or consumer.

    Raises ClickException if it cannot, unless the user gave ``--offline``; any other error of
    ``look`` as ApiError.
    """
    from penstock.errors import ApiError

    try:
        look()
    except ApiError as error:
        if error.err_code not in _OFFLINE_CODES:
            raise
        if not offline:
            text = f"{name} can't be read ({error.description}); its data may still be on the disk"
            raise click.ClickException(f"{text}; --offline removes it") from None


def command(function: F) -> F:
    """The option of every command: ``--json``."""
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
