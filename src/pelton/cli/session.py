"""The options that all commands share: how to connect, and the form of the output."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, TypeVar

import click

from pelton.cli.values import Word

if TYPE_CHECKING:
    from pelton.client.base.addresses import Server, TlsOptions
    from pelton.client.protocol.options import Options
    from pelton.client.sync import Client
    from pelton.client.sync.jetstream import JetStream
    from pelton.embedded.stored import StoredServer

F = TypeVar("F", bound=Callable[..., object])

_CREDENTIALS = ("user", "password", "token", "creds", "nkey")


@dataclass
class Session:
    """The options before the command; `as_json` may also follow it."""

    server: str
    context: str
    no_context: bool
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
    form: str = "table"  # of lists: one of FORMS
    api_prefix: str = ""
    inbox_prefix: str = ""
    connection_name: str = "pelton"
    jwt: str = ""  # of a user, or the file with it
    seed: str = ""  # of the user's nkey, or the file with it
    event_prefix: str = ""
    trace: bool = False
    color: str = "cyan"
    socks_proxy: str = ""
    store: str = ""  # a store folder or a backup, in place of a server
    store_account: str = ""
    store_backup: str = ""
    of_2020: bool = False  # print the texts of `nats` of March 2020
    _stored: StoredServer | None = None

    def choose_form(self, form: str) -> None:
        """Print lists in this form; json and jsonl mean JSON for everything else, too."""
        self.form = form
        self.as_json = form in ("json", "jsonl")

    def connect(self, *, lasting: bool = False, live: bool = False) -> Client:
        """A client, which the caller closes; raises ConnectError, ContextError, ValueError.

        A ``lasting`` client connects again, for ever, when its connection breaks. A ``live`` one asks a
        running server also with ``--store``.
        """
        import logging

        from pelton.client import sync

        # the command tells what it has to; without a handler Python prints errors a second time
        logging.getLogger("pelton").addHandler(logging.NullHandler())
        if self.store and not live:
            return self._stored_server().connect_sync()
        tell = _print_protocol if self.trace else None
        return sync.connect(self.options(lasting=lasting), on_protocol=tell)

    def options(self, *, lasting: bool = False) -> Options:
        """How to connect to a running server; raises ContextError, ValueError."""
        from pelton.client.protocol.options import Options

        seconds = self.timeout / 1e9
        given = self._given()
        if self.domain and self.api_prefix:
            raise click.UsageError("--domain and --js-api-prefix exclude each other")
        if self.domain or self.api_prefix:  # in place of those of the context
            given |= {"jetstream_domain": self.domain, "jetstream_prefix": self.api_prefix}
        return Options(
            **given,
            name=self.connection_name,
            timeout=seconds,
            connect_timeout=seconds,
            reconnect=lasting,
            reconnect_attempts_max=-1,
        )

    def _stored_server(self) -> StoredServer:
        if self._stored is None:
            from pelton.cli.store.opening import serve

            self._stored = serve(
                self.store,
                account=self.store_account,
                domain=self.domain,
                backup=self.store_backup,
            )
        return self._stored

    def server_and_tls(self) -> tuple[Server, TlsOptions | None]:
        """The first server, and the TLS options for it; ContextError, ValueError."""
        from pelton.client.protocol.options import Options

        options = Options(**self._given())
        return options.servers[0], options.tls

    def context_in_use(self) -> str:
        """The name of the context that gives options; "" for none.

        It is the named one. The selected one is used if no server is given or only servers of its
        own, so that no server gets credentials that were meant for another one.
        """
        if self.context and self.no_context:
            raise click.UsageError("--context and --no-context exclude each other")
        if self.context or self.no_context:
            return self.context
        from pelton.client.protocol.contexts import selected_context
        from pelton.errors import ContextError

        try:
            name = selected_context()
            return name if not self.server or self._servers_in(name) else ""
        except ContextError:
            return ""

    def _servers_in(self, context: str) -> list[Server]:
        """The given servers as the context has them; none if one of them is not there, or has a user."""
        from pelton.client.base.addresses import parse_servers
        from pelton.client.protocol.contexts import read_context

        given = parse_servers(self.server)
        known = {str(each): each for each in read_context(context).get("servers", ())}
        if any(str(each) not in known or each.user or each.token for each in given):
            return []
        return [known[str(each)] for each in given]

    def _given(self) -> dict[str, Any]:
        """The options of the context, and over them those of the command line."""
        from pelton.client.base.addresses import DEFAULT_URL, parse_servers

        found: dict[str, Any] = {"servers": parse_servers(self.server or DEFAULT_URL)}
        proxy = {"socks_proxy": self.socks_proxy} if self.socks_proxy else {}
        inbox = {"inbox_prefix": self.inbox_prefix} if self.inbox_prefix else {}
        if context := self.context_in_use():
            from pelton.client.protocol.contexts import read_context

            own = self._servers_in(context) if self.server else []
            if own:
                found["servers"] = own
            found = {**read_context(context), **(found if self.server else {})}
        credentials = {name: getattr(self, name) for name in _CREDENTIALS if getattr(self, name)}
        if self.jwt:
            credentials["jwt"] = _jwt(self.jwt)
        if self.seed:
            if self.nkey:
                raise click.UsageError("--nkey and --seed exclude each other")
            credentials["nkey"] = _seed(self.seed)
        if credentials:
            found = {
                name: each for name, each in found.items() if name not in (*_CREDENTIALS, "jwt")
            }
        return {**found, **credentials, **inbox, **proxy, "tls": self._tls(found.get("tls"))}

    def _tls(self, found: TlsOptions | None) -> TlsOptions | None:
        if not (self.tlscert or self.tlskey or self.tlsca or self.tlsfirst):
            return found
        from pelton.client.base.addresses import TlsOptions

        if bool(self.tlscert) != bool(self.tlskey):
            raise click.UsageError("--tlscert and --tlskey go together")
        base = found or TlsOptions()
        return replace(
            base,
            cert_file=self.tlscert or base.cert_file,
            key_file=self.tlskey or base.key_file,
            ca_file=self.tlsca or base.ca_file,
            first=self.tlsfirst or base.first,
        )

    def jetstream(self, client: Client) -> JetStream:
        """The JetStream of the requested domain, which is that of the client."""
        return client.jetstream()


def _content(text: str) -> str:
    """The text, or the contents of the file with this name."""
    from pathlib import Path

    try:
        return Path(text).expanduser().read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError):
        return text


def _seed(text: str) -> str:
    """A user's seed: the text, or that in the file with this name; UsageError, which does not show it."""
    from pelton.nkeys import NkeyError, read_seed

    try:
        return read_seed(_content(text))
    except NkeyError:
        raise click.UsageError("--seed: expected an nkey seed or a file containing one") from None


def _jwt(text: str) -> str:
    """A user's JWT: the text, or that in the file with this name, which may be a ``.creds`` file."""
    from pelton.nkeys import read_jwt

    return read_jwt(_content(text))


def _print_protocol(direction: str, line: str) -> None:
    import sys

    from pelton.core.base.quoting import shown

    print("<<<" if direction == "in" else ">>>", shown(line), file=sys.stderr, flush=True)


def not_here(option: str, instead: str, *, flag: bool = False) -> Callable[[F], F]:
    """An option of the ``nats`` command that is refused with advice; the help text leaves it out."""

    def refuse(ctx: click.Context, parameter: click.Parameter, value: object) -> None:
        if value:
            raise click.UsageError(f"there is no {option} here: {instead}", ctx)

    return click.option(
        option,
        is_flag=flag,
        default=False if flag else None,
        hidden=True,
        is_eager=True,
        expose_value=False,
        callback=refuse,
    )


OFFLINE = click.option("--offline", is_flag=True, help="Also if it cannot be read now.")
_OFFLINE_CODES = (10118, 10119, 10194, 10195)


def check_readable(look: Callable[[], object], name: str, offline: bool) -> None:
    """Check before a removal that the server can read the stream or consumer.

    Raises ClickException if it cannot, unless the user gave ``--offline``; any other error of
    ``look`` as ApiError.
    """
    from pelton.errors import ApiError

    try:
        look()
    except ApiError as error:
        if error.err_code not in _OFFLINE_CODES:
            raise
        if not offline:
            text = f"{name} can't be read ({error.description}); its data may still be on the disk"
            raise click.ClickException(f"{text}; --offline removes it") from None


FORMS = ("table", "json", "jsonl", "csv", "md")


def command(function: F) -> F:
    """The options of every command: ``--json`` and ``--format``."""
    as_json = click.option(
        "-j",
        "--json",
        is_flag=True,
        expose_value=False,
        callback=_set_json,
        help="Print JSON instead of tables.",
    )
    return as_json(FORMAT(function))


def _set_json(ctx: click.Context, parameter: click.Parameter, value: bool) -> None:
    if value:
        ctx.find_object(Session).choose_form("json")  # type: ignore[union-attr]  # set by the top


def set_form(ctx: click.Context, parameter: click.Parameter, value: str | None) -> None:
    """Use the form that ``--format`` after the command names."""
    if value is not None:
        ctx.find_object(Session).choose_form(value)  # type: ignore[union-attr]  # set by the top


FORMAT = click.option(
    "--format",
    type=Word(FORMS),
    default=None,
    expose_value=False,
    callback=set_form,
    help="Print lists in this form; table by default.",
)
