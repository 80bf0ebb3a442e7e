"""Settings of the WebSocket listener. Plain values."""

from msgspec import field

from pelton.server.settings.redacted import Redacted
from pelton.server.settings.tls import Tls
from pelton.server.units import SECOND_NS


class Websocket(Redacted):
    """A ``websocket`` map; port 0 means no listener."""

    secrets = ("password", "token")

    host: str = "0.0.0.0"
    port: int = 0  # -1: any free port
    advertise: str = ""  # host:port that clients are told in place of the listening address
    no_tls: bool = False
    tls: Tls | None = None
    same_origin: bool = False
    allowed_origins: list[str] = field(default_factory=list)  # []: any
    handshake_timeout_ns: int = 2 * SECOND_NS  # for the TLS handshake and the request together
    compression: bool = False
    headers: dict[str, str] = field(default_factory=dict)  # additional headers of the response
    ping_interval_ns: int = 0  # 0: as for other clients

    # Credentials for this listener; without any, the server's apply.
    user: str = ""
    password: str = ""
    token: str = ""
    auth_timeout_ns: int = 0
    no_auth_user: str = ""
    jwt_cookie: str = ""  # names of cookies with credentials
    user_cookie: str = ""
    pass_cookie: str = ""
    token_cookie: str = ""

    @property
    def auth_override(self) -> bool:
        """Whether this listener has its own credentials."""
        return bool(self.user or self.token or self.no_auth_user)
