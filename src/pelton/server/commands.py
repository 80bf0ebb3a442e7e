"""Commands of an operator to a running server: stop, reopen the log file, reload, lame duck mode; also
notifications to systemd.

    SIGINT   stop                             SIGTERM  stop; ignored in lame duck mode
    SIGUSR1  open the log file again          SIGUSR2  lame duck mode
    SIGHUP   reload
"""

import os
import signal
import threading
import time

from pelton.server.errors import StartError

TYPE_CHECKING = False
if TYPE_CHECKING:
    import asyncio

    from pelton.server.app import Server
    from pelton.server.reload import Read

SIGNALS = {
    signal.SIGINT: "interrupt",
    signal.SIGTERM: "terminated",
    signal.SIGUSR1: "user defined signal 1",
    signal.SIGUSR2: "user defined signal 2",
    signal.SIGHUP: "hangup",
}


class Commands:
    """The commands of one server."""

    def __init__(self, server: "Server") -> None:
        """No command has been given."""
        self._server = server
        self._lame_duck: asyncio.Task[None] | None = None
        self._wanted = 0  # reloads: the one whose configuration is read, and later signals

    @property
    def leaving(self) -> bool:
        """Whether the server is in lame duck mode."""
        return self._lame_duck is not None

    def trapped(self, number: int) -> None:
        """Handle a signal."""
        server = self._server
        server.log.info(f'Trapped "{SIGNALS[signal.Signals(number)]}" signal')
        if number == signal.SIGUSR1:
            server.log.reopen()
            server.log.info("File log re-opened")
        elif number == signal.SIGUSR2:
            self.go_lame()
        elif number == signal.SIGHUP:
            self._reload_aside()
        elif number == signal.SIGINT or not self.leaving:
            server.stop()

    def reload(self) -> str:
        """Reload the configuration and the options at once. Returns the error, or ""."""
        self._tell_reloading()
        return self._finish_reload(self._server.reloads.read())

    def _reload_aside(self) -> None:
        """Reload; a thread reads the configuration, which may be long, while clients are served. A
        signal that comes meanwhile causes one more reload afterwards.
        """
        self._wanted += 1
        if self._wanted > 1:
            return
        self._tell_reloading()
        server = self._server

        def read() -> None:
            try:
                found = server.reloads.read()
            except Exception as error:  # the next signal must cause a reload again
                found = StartError(f"the configuration was not read: {error!r}")
            server.run_on_loop(lambda: apply(found))

        def apply(found: "Read") -> None:
            again = self._wanted > 1
            self._wanted = 0
            if not server.stopping:
                self._finish_reload(found)
                if again:
                    self._reload_aside()

        threading.Thread(target=read, name="reload", daemon=True).start()

    def _tell_reloading(self) -> None:
        now_us = time.monotonic_ns() // 1000
        self._server.tell_systemd(f"RELOADING=1\nMONOTONIC_USEC={now_us}")

    def _finish_reload(self, found: "Read") -> str:
        server = self._server
        failure = server.reloads.finish(found)
        if not failure:
            server.watching.reloaded()
        server.event_loop.now_ns = server.event_loop.clock.now()
        server.event_loop.kick()
        server.tell_systemd("READY=1")
        return failure

    def go_lame(self) -> None:
        """Enter lame duck mode, once; it ends with the stop of the server."""
        server = self._server
        if self.leaving or server.stopping:
            return
        from random import SystemRandom

        from pelton.server.lame_duck import LameDuck

        leaving = LameDuck(
            server.settings,
            server.event_loop,
            server.log,
            [self._say_leaving, server.close_listeners, server.close_jetstream],
            self._tell_clients,
            server.stop,
            SystemRandom(),
        )
        self._lame_duck = server.loop.create_task(leaving.run())

    def _say_leaving(self) -> None:
        self._server.watching.leaving(lame_duck=True)

    def _tell_clients(self) -> None:
        server = self._server
        server.greeting.refresh(server.settings, lame_duck=True)
        server.clients.tell_lame_duck()
        server.event_loop.kick()

    def close(self) -> None:
        """End the commands in progress; the server is stopping."""
        if self._lame_duck is not None:
            self._lame_duck.cancel()


def tell_systemd(state: str) -> None:
    """Send a state by sd_notify, when systemd expects it."""
    if "NOTIFY_SOCKET" in os.environ:
        from pelton.server.sd_notify import notify

        notify(state)
