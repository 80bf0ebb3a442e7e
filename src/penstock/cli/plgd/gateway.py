"""``penstock plgd gateway``: the hub's gRPC gateway, served from an event store until it is interrupted."""

from __future__ import annotations

import asyncio
import json
import signal
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Any

import click

from penstock.cli.failures import DONE
from penstock.cli.plgd.lines import needs
from penstock.cli.plgd.stores import contents, open_store
from penstock.cli.session import Session, command

if TYPE_CHECKING:
    from penstock.plgd.gateway import ServerTls, TokenVerifier


@click.command()
@click.option(
    "--store", "place", required=True, help="Event store: a SQLite file, or mongodb://..."
)
@click.option(
    "--listen", default="127.0.0.1:9100", show_default=True, help="Address; port 0: any free one."
)
@click.option(
    "--jwks",
    "keys",
    multiple=True,
    required=True,
    type=click.Path(),
    help="File with keys that sign tokens: a JSON web key set, a public key or certificate as PEM.",
)
@click.option(
    "--owner-claim", default="sub", show_default=True, help="The token's claim with the owner."
)
@click.option("--audience", default=None, help="The audience that tokens must have.")
@click.option("--issuer", default=None, help="The issuer that tokens must have.")
@click.option("--cert", default="", type=click.Path(), help="Certificate of the server (PEM).")
@click.option("--key", default="", type=click.Path(), help="Its key.")
@click.option(
    "--client-ca", default="", type=click.Path(), help="Ask clients for certificates of these."
)
@click.option("--plaintext", is_flag=True, help="Serve without TLS.")
@click.option(
    "--bus/--no-bus", default=True, help="Let clients subscribe to events of the NATS server."
)
@command
@click.pass_obj
def gateway(session: Session, /, **asked: Any) -> int:
    """Serve the hub's gRPC gateway until Ctrl-C: GetEvents, GetResources, SubscribeToEvents ...

    Callers bring a token; they see the devices of its owner. With --bus, the connection is that of the
    other commands (--server, --context ...).

    \b
    penstock plgd gateway --store plgd.db --jwks keys.json --cert server.pem --key server.key
    """
    try:
        from penstock.plgd.gateway import TokenVerifier
    except ImportError as problem:
        raise needs(problem) from None
    tls = _tls(asked)
    try:
        verifier = TokenVerifier(
            [contents(path, "--jwks") for path in asked["keys"]],
            owner_claim=asked["owner_claim"],
            audience=asked["audience"],
            issuer=asked["issuer"],
        )
    except ValueError as error:
        raise click.BadParameter(str(error), param_hint="--jwks") from None
    open_store(asked["place"]).close()  # say at once what is wrong with it
    asyncio.run(_serve(session, asked, verifier, tls))
    return DONE


def _tls(asked: dict[str, Any]) -> ServerTls | None:
    """The server's certificate; None for no TLS."""
    from penstock.plgd.gateway import ServerTls

    if asked["plaintext"]:
        if asked["cert"] or asked["key"] or asked["client_ca"]:
            raise click.UsageError("--plaintext excludes --cert, --key and --client-ca")
        return None
    if not asked["cert"] or not asked["key"]:
        raise click.UsageError("give --cert and --key, or --plaintext")
    ca = contents(asked["client_ca"], "--client-ca") if asked["client_ca"] else None
    return ServerTls(contents(asked["cert"], "--cert"), contents(asked["key"], "--key"), ca)


async def _serve(
    session: Session, asked: dict[str, Any], verifier: TokenVerifier, tls: ServerTls | None
) -> None:
    """Serve until a signal."""
    from penstock.client import connect
    from penstock.plgd.gateway import GatewayServer

    end = asyncio.Event()
    for each in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(each, end.set)
    async with AsyncExitStack() as stack:
        client = None
        if asked["bus"]:
            client = await stack.enter_async_context(connect(session.options(lasting=True)))
        server = GatewayServer(lambda: open_store(asked["place"]), verifier, client=client)
        await stack.enter_async_context(server)
        port = await server.start(asked["listen"], tls=tls)
        host = asked["listen"].rpartition(":")[0]
        if session.as_json:
            print(json.dumps({"event": "listening", "host": host, "port": port}), flush=True)
        else:
            print(f"gateway on {host}:{port}, {'with' if tls else 'without'} TLS", flush=True)
        await end.wait()
