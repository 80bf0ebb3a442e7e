"""Authentication by operator JWTs and by an auth callout service. Its modules and the key of the server are
loaded only when the settings use them.
"""

from pelton.server.identity import new_server_id
from pelton.server.settings import COMPATIBLE_VERSION, Settings

TYPE_CHECKING = False
if TYPE_CHECKING:
    from pelton.server.app import Server
    from pelton.server.auth.callout import ServerKeys
    from pelton.server.auth.setup import Setup


class ExternalAuth:
    """The external authentication of one server: `connect` sets it up, `refresh` follows a reload."""

    def __init__(self, settings: Settings) -> None:
        """A server without operator mode and auth callout gets an id without a key. StartError when
        the package for keys is not installed.
        """
        self.keys = _keys(settings)
        self.server_id = self.keys.signing.public if self.keys else new_server_id()
        self._setup: Setup | None = None

    def connect(self, server: "Server") -> None:
        """Set up the operator mode and the callout. StartError when a resolver's folder can't be
        used.
        """
        if self.keys is None:
            return
        from pelton.server.auth.setup import Setup

        self._setup = Setup(
            server.settings,
            server.accounts,
            server.authenticator,
            server.clients,
            server.log,
            server.run_on_loop,
        )
        self._setup.connect(self.keys, server.server_name, lambda: about(server))

    def refresh(self, server: "Server") -> None:
        """Apply a reload: an added or removed callout service, changed preloaded JWTs."""
        settings = server.settings
        if settings.auth_callout is None:
            server.authenticator.callout = None
        elif server.authenticator.callout is None:
            # A server that started without a key signs with a new key from now on.
            self.keys = self.keys or _keys(settings)
            self.connect(server)
        if self._setup is not None:
            self._setup.reloaded()


def about(server: "Server") -> dict[str, object]:
    """The description of this server in answers of the system account."""
    return {
        "name": server.server_name,
        "host": server.host,
        "id": server.server_id,
        "ver": COMPATIBLE_VERSION,
        "jetstream": server.settings.jetstream,
    }


def _keys(settings: Settings) -> "ServerKeys | None":
    if settings.auth_callout is None and settings.operator is None:
        return None
    from pelton.server.auth.setup import make_keys

    return make_keys()
