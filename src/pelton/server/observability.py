"""Opens and closes the monitoring port, the system account and the profile port of a running server.

They open after all other parts and close before them. `monitor` and `system` make the reports and are
loaded at their first use.
"""

import time

from pelton.server.units import SECOND_NS, join_address

TYPE_CHECKING = False
if TYPE_CHECKING:
    import asyncio
    import socket
    import ssl

    from pelton.server.app import Server
    from pelton.server.http import HttpServer
    from pelton.server.monitor import ServerState
    from pelton.server.monitor.profile_port import ProfilePort


class Observability:
    """The monitoring port, system account and profile port of one server."""

    def __init__(self, server: "Server") -> None:
        """Nothing is open yet."""
        self._server = server
        self._server_state: ServerState | None = None
        self._http: HttpServer | None = None
        self._profiling: ProfilePort | None = None
        self._timer: asyncio.TimerHandle | None = None

    def server_state(self) -> "ServerState":
        """The state that reports read."""
        if self._server_state is None:
            from pelton.server.monitor import ServerState

            server = self._server
            system = server.accounts.system
            self._server_state = ServerState(
                settings=server.settings,
                server_id=server.server_id,
                server_name=server.server_name,
                host=server.host,
                port=server.port,
                http_port=server.http_port,
                start_ns=server.start_ns,
                reactor=server.event_loop,
                clients=server.clients,
                accounts=server.accounts.all,
                jetstream=lambda: server.jetstream,
                leaf_port=lambda: server.leafs.port if server.leafs is not None else 0,
                warn=server.log.warn,
                system_account=system.name if system else "",
            )
        return self._server_state

    def reloaded(self) -> None:
        """Apply a reload."""
        if self._server_state is not None:
            self._server_state.loaded_ns = time.time_ns()

    # -- the monitoring port

    async def open_monitoring(
        self, sockets: "list[socket.socket]", context: "ssl.SSLContext | None"
    ) -> None:
        """Serve on listening sockets; with a context, over TLS."""
        from pelton.server.http import HttpServer
        from pelton.server.monitor import respond

        server_state = self.server_state()
        log = self._server.log
        self._http = HttpServer(lambda path, query: respond(server_state, path, query), log.error)
        await self._http.open(sockets, context)

    # -- the system account, and profiles

    def open(self) -> None:
        """Open the system account, unless it is disabled, and the profile port, if configured.
        Raises StartError.
        """
        self._open_system()
        port = self._server.settings.prof_port
        if port:
            from pelton.server.monitor.profile_port import ProfilePort

            host = self._server.host
            self._profiling = ProfilePort(host, port, self.server_state())
            shown = join_address(host, self._profiling.port)
            self._server.log.info(f"Profiling is on http://{shown}/debug/pprof")

    @property
    def profile_port(self) -> int:
        """The port of the profile endpoint; 0 when it is closed."""
        return self._profiling.port if self._profiling is not None else 0

    def _open_system(self) -> None:
        server = self._server
        account = server.accounts.system
        if account is None:
            return
        from pelton.server.system import System
        from pelton.server.system.actions import ServerActions

        actions = ServerActions(server)
        system = System(
            self.server_state, server.server_id, account.router, actions, server.run_on_loop
        )
        server.accounts.when_made(
            lambda made: system.serve(made.name, made.router) if made is not account else None
        )
        server.clients.system = server.sessions.message_trace = system

    def start(self) -> None:
        """Publish the statistics of the system account from time to time, by the server's loop."""
        self._tick()

    def _tick(self) -> None:
        server = self._server
        if server.clients.system is not None:
            now_ns = server.event_loop.now_ns = server.event_loop.clock.now()
            due_ns = server.clients.system.tick(now_ns)
            server.event_loop.kick()
            self._timer = server.loop.call_later((due_ns - now_ns) / SECOND_NS, self._tick)

    def leaving(self, *, lame_duck: bool) -> None:
        """Publish the event that the server stops or enters lame duck mode."""
        system = self._server.clients.system
        if system is not None:
            system.leaving(lame_duck=lame_duck)
        if not lame_duck:
            self._server.clients.system = None
            if self._timer is not None:
                self._timer.cancel()

    async def close(self) -> None:
        """Close the ports."""
        if self._http is not None:
            await self._http.close()
        if self._profiling is not None:
            self._profiling.close()
