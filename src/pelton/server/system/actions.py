"""Actions of the system account's services on a running server."""

from typing import TYPE_CHECKING

from pelton.server.clients.client import Client

if TYPE_CHECKING:
    from pelton.server.app import Server


class ServerActions:
    """Implements `system.Actions`."""

    def __init__(self, server: "Server") -> None:
        """Acts on this server."""
        self._server = server

    def reload_configuration(self) -> str:
        """Reload, as SIGHUP does. Returns the error, or ""."""
        return self._server.commands.reload()

    def disconnect_client(self, cid: int) -> bool:
        """Close the connection. False when there is none."""
        connection = self._server.connection(cid)
        if connection is not None:
            self._server.event_loop.disconnect(connection, "Kicked")
        return connection is not None

    def send_lame_duck(self, cid: int) -> str:
        """Send one client the lame duck INFO. Returns the error, or ""."""
        server = self._server
        connection = server.connection(cid)
        client = None if connection is None else connection.session
        if connection is None or not isinstance(client, Client):
            return "no such client id"
        server.greeting.refresh(server.settings, lame_duck=True)
        told = server.clients.say_again(connection, client)
        server.greeting.refresh(server.settings, lame_duck=server.lame_duck)
        if told:
            return ""
        return "client does not support Lame Duck Mode or is not ready to receive the notification"

    def audit(self, subject: str, request: bytes, answer: bytes) -> None:
        """Publish the audit of a JetStream request in the system account."""
        if self._server.jetstream is not None:
            self._server.jetstream.audit_system(subject, request, answer, named=True)

    def purge_account(self, name: str) -> str:
        """Remove all JetStream data of an account. Returns the error, or ""."""
        if "/" in name or "\\" in name:
            return "account name can not contain path separators"
        if self._server.jetstream is None:
            return "JetStream not enabled"
        return self._server.jetstream.purge(name)
