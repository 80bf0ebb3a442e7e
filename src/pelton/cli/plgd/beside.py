"""A gateway beside the pipeline of ``pelton plgd run``, in its own thread, as long as the run lasts."""

from __future__ import annotations

import asyncio
import threading
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource

from pelton.cli.plgd.gateway import checked, serving, tell

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pelton.cli.session import Session
    from pelton.plgd.gateway import ServerTls, TokenVerifier

PREFIX = "gateway_"
OPTION_PREFIX = "gateway-"
START_SECONDS = 60.0

Made = tuple[dict[str, Any], "TokenVerifier", "ServerTls | None"]


def gateway_asked(ctx: click.Context, given: dict[str, Any]) -> Made | None:
    """Take the options of the gateway out of those of a command; None if there is to be none."""
    asked = {
        name.removeprefix(PREFIX): given.pop(name)
        for name in list(given)
        if name.startswith(PREFIX)
    }
    if asked["store"] is None:
        for name in asked:
            if ctx.get_parameter_source(PREFIX + name) is ParameterSource.COMMANDLINE:
                option = f"--{OPTION_PREFIX}{name.replace('_', '-')}"
                raise click.UsageError(f"{option} needs --{OPTION_PREFIX}store")
        return None
    if not asked["jwks"]:
        raise click.UsageError(f"--{OPTION_PREFIX}store needs --{OPTION_PREFIX}jwks")
    verifier, tls = checked(asked, OPTION_PREFIX)
    return asked, verifier, tls


class Beside:
    """A gateway in a thread; The run calls `check` from time to time."""

    def __init__(self) -> None:
        """It has not begun."""
        self.port = 0
        self.thread = threading.Thread()
        self.problem: BaseException | None = None

    def check(self) -> None:
        """ClickException if it has ended, with the reason."""
        if not self.thread.is_alive():
            reason = f": {self.problem}" if self.problem is not None else ""
            raise click.ClickException(f"the gateway has ended{reason}; start the command again")


@contextmanager
def gateway_beside(session: Session, made: Made) -> Iterator[Beside]:
    """A gateway for as long as the context. An error of its start is raised here."""
    asked, verifier, tls = made
    loop = asyncio.new_event_loop()
    end = asyncio.Event()
    started: Future[int] = Future()
    beside = Beside()

    async def serve() -> None:
        try:
            async with serving(session, asked, verifier, tls) as port:
                started.set_result(port)
                await end.wait()
        except BaseException as error:  # whatever ends the thread is told
            beside.problem = error
            if not started.done():
                started.set_exception(error)

    thread = threading.Thread(target=_run, args=(loop, serve), name="gateway", daemon=True)
    beside.thread = thread
    thread.start()
    try:
        beside.port = started.result(START_SECONDS)
        tell(session, asked, beside.port, tls)
        yield beside
    finally:
        with suppress(RuntimeError):  # it has ended already
            loop.call_soon_threadsafe(end.set)
        thread.join(START_SECONDS)


def _run(loop: asyncio.AbstractEventLoop, work: Callable[[], Any]) -> None:
    """Run a coroutine in a loop of this thread."""
    try:
        loop.run_until_complete(work())
    finally:
        loop.close()
