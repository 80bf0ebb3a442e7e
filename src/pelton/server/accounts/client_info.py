"""The description of a client in requests to other accounts, in advisories and in measurements."""

from pelton.api.calls import ClientInfo
from pelton.api.codec import encode
from pelton.core.broker.reactor import Connection
from pelton.server.clients.client import Client
from pelton.server.leaf.node import LeafNode
from pelton.server.settings.accounts import DEFAULT_ACCOUNT


def client_info(
    connection: Connection, *, detailed: bool, server: str = "", service: str = ""
) -> ClientInfo:
    """The ClientInfo of a connection, in full or with account and round trip only.

    `server` is this server's name when it may be shown, `service` the account that forwarded the
    request.
    """
    party = connection.session
    known = party if isinstance(party, Client | LeafNode) else None
    info = ClientInfo(
        acc=known.account_name if known is not None else DEFAULT_ACCOUNT,
        svc=service,
        rtt=connection.rtt_ns,
        server=server,
    )
    if detailed:
        info.start = connection.start_ns
        info.id = connection.id
        info.kind = "Client"
        info.client_type = "nats"
        if isinstance(party, Client):
            info.lang, info.ver = party.lang, party.version
        elif isinstance(party, LeafNode):
            info.kind, info.client_type, info.server = "Leafnode", "", party.name
        if known is not None:
            info.host, info.user, info.name = known.host, known.user, known.name
            admitted = known.admitted
            if admitted is not None:
                info.issuer_key, info.name_tag = admitted.issuer, admitted.name_tag
                info.tags = admitted.tags or None
    return info


def shown_jwt(connection: Connection) -> str:
    """The JWT of a client as monitoring shows it; "" for a bearer token."""
    client = connection.session
    if not isinstance(client, Client) or client.admitted is None or not client.admitted.jwt:
        return ""
    from pelton.server.auth.shown_claims import is_bearer

    return "" if is_bearer(client.admitted.jwt) else client.admitted.jwt


class RequestInfo:
    """Makes the `Nats-Request-Info` of requests to other accounts."""

    def __init__(self, server_name: str) -> None:
        """`server` is this server's name."""
        self._server = server_name

    def __call__(
        self, connection: Connection, detailed: bool, with_server: bool, service: str
    ) -> bytes:
        """ClientInfo as JSON."""
        server = self._server if detailed or with_server else ""
        info = client_info(connection, detailed=detailed, server=server, service=service)
        party = connection.session
        if detailed and isinstance(party, Client | LeafNode) and party.admitted is not None:
            info.jwt = party.admitted.jwt  # only the service gets the JWT, and may check it
        return encode(info)
