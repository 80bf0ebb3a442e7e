"""``pelton plgd gateway``: the hub's gRPC gateway, served from an event store until it is interrupted."""

from __future__ import annotations

import asyncio
import json
import os
import signal
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import click

from pelton.cli.failures import DONE
from pelton.cli.plgd.lines import needs
from pelton.cli.plgd.stores import TARGET, contents, open_store, pem
from pelton.cli.session import Session, command

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from pelton.plgd.gateway import ServerTls, TokenVerifier

_OPTIONS: list[tuple[str, dict[str, Any]]] = [
    ("store", {"required": True, "help": "Event store: a SQLite file, or mongodb://..."}),
    (
        "listen",
        {
            "default": "127.0.0.1:9100",
            "show_default": True,
            "help": "Address; port 0: any free one.",
        },
    ),
    (
        "jwks",
        {
            "multiple": True,
            "required": True,
            "type": click.Path(),
            "help": "File with keys that sign tokens: a JSON web key set, a public key or certificate"
            " as PEM.",
        },
    ),
    (
        "owner-claim",
        {"default": "sub", "show_default": True, "help": "The token's claim with the owner."},
    ),
    ("audience", {"default": None, "help": "The audience that tokens must have."}),
    ("issuer", {"default": None, "help": "The issuer that tokens must have."}),
    ("cert", {"default": "", "type": click.Path(), "help": "Certificate of the server (PEM)."}),
    ("key", {"default": "", "type": click.Path(), "help": "Its key."}),
    (
        "client-ca",
        {"default": "", "type": click.Path(), "help": "Ask clients for certificates of these."},
    ),
    ("plaintext", {"is_flag": True, "help": "Serve without TLS."}),
    (
        "bus",
        {"default": True, "help": "Let clients subscribe to events of the NATS server."},
    ),
]


def gateway_options(prefix: str = "") -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """The options of a gateway; with a prefix as those of another command, which need not serve one."""

    def add(function: Callable[..., Any]) -> Callable[..., Any]:
        for name, how in reversed(_OPTIONS):
            settings = dict(how)
            flag = f"--{prefix}{name}"
            if prefix:
                settings["required"] = False
                settings["help"] = f"Gateway: {how['help'][0].lower()}{how['help'][1:]}"
            if name == "bus":
                flag += f"/--{prefix}no-bus"
            field = f"{prefix}{name}".replace("-", "_")
            function = click.option(flag, field, **settings)(function)
        return function

    return add


@click.command()
@gateway_options()
@command
@click.pass_obj
def gateway(session: Session, /, **asked: Any) -> int:
    """Serve the hub's gRPC gateway until Ctrl-C: GetEvents, GetResources, SubscribeToEvents ...

    Callers bring a token; they see the devices of its owner. With --bus, the connection is that of the
    other commands (--server, --context ...).

    \b
    pelton plgd gateway --store plgd.db --jwks keys.json --cert server.pem --key server.key
    """
    verifier, tls = checked(asked)
    asyncio.run(_serve(session, asked, verifier, tls))
    return DONE


def checked(asked: dict[str, Any], prefix: str = "") -> tuple[TokenVerifier, ServerTls | None]:
    """Check the keys of tokens, the server's certificate, and that the store opens; raises an error otherwise."""
    os.environ.setdefault("GRPC_VERBOSITY", "NONE")  # its lines say less than the error
    try:
        from pelton.plgd.gateway import TokenVerifier
    except ImportError as problem:
        raise needs(problem) from None
    if not TARGET.fullmatch(asked["listen"]):
        raise click.UsageError(f"--{prefix}listen is host:port, not {asked['listen']!r}")
    tls = _tls(asked, prefix)
    jwks = f"--{prefix}jwks"
    try:
        verifier = TokenVerifier(
            [contents(path, jwks) for path in asked["jwks"]],
            owner_claim=asked["owner_claim"],
            audience=asked["audience"],
            issuer=asked["issuer"],
        )
    except ValueError as error:
        raise click.BadParameter(str(error), param_hint=jwks) from None
    open_store(asked["store"]).close()  # say at once what is wrong with it
    return verifier, tls


def _tls(asked: dict[str, Any], prefix: str) -> ServerTls | None:
    """The server's certificate; None for no TLS."""
    from pelton.plgd.gateway import ServerTls

    cert, key, ca, plaintext = (
        f"--{prefix}{name}" for name in ("cert", "key", "client-ca", "plaintext")
    )
    if asked["plaintext"]:
        if asked["cert"] or asked["key"] or asked["client_ca"]:
            raise click.UsageError(f"{plaintext} excludes {cert}, {key} and {ca}")
        return None
    if not asked["cert"] or not asked["key"]:
        raise click.UsageError(f"give {cert} and {key}, or {plaintext}")
    trusted = pem(asked["client_ca"], ca) if asked["client_ca"] else None
    return ServerTls(pem(asked["cert"], cert), pem(asked["key"], key), trusted)


@asynccontextmanager
async def serving(
    session: Session, asked: dict[str, Any], verifier: TokenVerifier, tls: ServerTls | None
) -> AsyncIterator[int]:
    """A gateway for as long as the context; its port."""
    from contextlib import AsyncExitStack

    from pelton.client.aio import connect
    from pelton.plgd.gateway import GatewayServer

    async with AsyncExitStack() as stack:
        client = None
        if asked["bus"]:
            client = await stack.enter_async_context(connect(session.options(lasting=True)))
        server = GatewayServer(lambda: open_store(asked["store"]), verifier, client=client)
        await stack.enter_async_context(server)
        yield await server.start(asked["listen"], tls=tls)


def tell(session: Session, asked: dict[str, Any], port: int, tls: ServerTls | None) -> None:
    """Say where a gateway listens."""
    host = asked["listen"].rpartition(":")[0]
    if session.as_json:
        print(json.dumps({"event": "listening", "host": host, "port": port}), flush=True)
    else:
        print(f"gateway on {host}:{port}, {'with' if tls else 'without'} TLS", flush=True)


async def _serve(
    session: Session, asked: dict[str, Any], verifier: TokenVerifier, tls: ServerTls | None
) -> None:
    """Serve until a signal."""
    end = asyncio.Event()
    for each in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(each, end.set)
    async with serving(session, asked, verifier, tls) as port:
        tell(session, asked, port, tls)
        await end.wait()
