"""Settings of the WebSocket listener. Plain values."""

from penstock.server.fast_dataclass import FastDataclass, field
from penstock.server.settings.tls import Tls
from penstock.server.units import SECOND_NS


class Websocket(FastDataclass):
    """A ``websocket`` map; there is no listener while the port is 0."""

    host: str = "0.0.0.0"
    port: int = 0  # -1: any free one
    advertise: str = ""  # host:port that clients are told instead
    no_tls: bool = False
    tls: Tls | None = None
    same_origin: bool = False
    allowed_origins: list[str] = field(default_factory=list)  # []: any
    handshake_timeout_ns: int = 2 * SECOND_NS  # TLS and request together
    compression: bool = False
    headers: dict[str, str] = field(default_factory=dict)  # more of the answer's
    ping_interval_ns: int = 0  # 0: as of other clients

    # Credentials for this listener; without any, those of the server.
    user: str = ""
    password: str = field(default="", secret=True)
    token: str = field(default="", secret=True)
    auth_timeout_ns: int = 0
    no_auth_user: str = ""
    jwt_cookie: str = ""  # names of cookies with credentials
    user_cookie: str = ""
    pass_cookie: str = ""
    token_cookie: str = ""

    @property
    def auth_override(self) -> bool:
        """Whether clients of this listener show other credentials than those of the server."""
        return bool(self.user or self.token or self.no_auth_user)
