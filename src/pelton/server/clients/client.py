"""The server's data about a client: the ``session`` of its connection."""

from msgspec import Struct

from pelton.core.base.quoting import quoted
from pelton.core.broker.reactor import Connection
from pelton.server.clients.timer_wheel import NEVER_NS
from pelton.server.settings.accounts import DEFAULT_ACCOUNT

TYPE_CHECKING = False
if TYPE_CHECKING:
    from pelton.server.accounts.registry import ServerAccount
    from pelton.server.auth import Admitted
    from pelton.server.transports.tls import TlsInfo

WEBSOCKET = "WEBSOCKET"  # the kind of WebSocket connections
LEAFNODE = "LEAFNODE"  # the kind of connections from other servers
LEAFNODE_WS = "LEAFNODE_WS"  # and of those over WebSocket


class Cookies(Struct):
    """Credentials in cookies of a WebSocket's request, used where CONNECT has none."""

    jwt: str = ""
    user: str = ""
    password: str = ""
    token: str = ""


class Client:
    """The data that the server keeps with a Connection (its ``session``)."""

    __slots__ = (
        "account",
        "admitted",
        "cookies",
        "due_ns",
        "expires_ns",
        "host",
        "kind",
        "lang",
        "max_payload",
        "name",
        "nonce",
        "pinged",
        "port",
        "protocol",
        "slot",
        "tls",
        "user",
        "version",
    )

    def __init__(self, host: str, port: int, due_ns: int) -> None:
        """A client at that address, due for a check at due_ns."""
        self.host = host
        self.port = port
        # The time of the next check: the authentication is late, or a ping is due. Clients.look_at
        # sets it.
        self.due_ns = due_ns
        self.slot = 0  # slot in the timer wheel
        self.pinged = False
        self.name = ""
        self.lang = ""
        self.version = ""
        self.user = ""
        self.protocol = 0
        self.max_payload = NEVER_NS  # bytes; the lower one of the server's and the user's limit
        self.tls: TlsInfo | None = None  # facts of its TLS handshake
        self.cookies: Cookies | None = None  # credentials of a WebSocket's request
        self.kind = "STANDARD"  # connection type, as users may restrict it
        self.nonce = ""  # the nonce that INFO asked it to sign
        self.account: ServerAccount | None = None  # None before CONNECT
        self.admitted: Admitted | None = None  # None before CONNECT
        self.expires_ns = NEVER_NS  # when its authentication expires

    @property
    def account_name(self) -> str:
        """The account of the client; before CONNECT, the default one."""
        return self.account.name if self.account is not None else DEFAULT_ACCOUNT


def where(connection: Connection, client: Client) -> str:
    """The beginning of a log line about a client."""
    return f"{client.host}:{client.port} - cid:{connection.id}"


def full_label(connection: Connection, client: Client) -> str:
    """The beginning of a log line, with the client's own description and its user:

    127.0.0.1:40222 - cid:5 - "v1.2:python:billing" - "SHOP/user:bob"
    """
    label = where(connection, client)
    facts = [f"v{client.version}"] if client.version else []
    facts += [fact for fact in (client.lang, client.name) if fact]
    if facts:
        label += f" - {quoted(':'.join(facts))}"
    user = client.admitted.shown if client.admitted is not None else ""
    if user:
        label += f" - {quoted(f'{client.account_name}/{user}')}"
    return label
