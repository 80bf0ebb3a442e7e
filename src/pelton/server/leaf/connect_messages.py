"""INFO and CONNECT of this server on leaf node connections, from its settings."""

from typing import NamedTuple

from pelton.core.protocol.api_level import API_LEVEL
from pelton.server.identity import RUNTIME
from pelton.server.leaf import negotiation
from pelton.server.leaf.negotiation import Connect, Info
from pelton.server.leaf.node import LeafNode
from pelton.server.settings import COMPATIBLE_VERSION, Settings
from pelton.server.settings.leafnodes import LeafNodes, LeafRemote


class Identity(NamedTuple):
    """The identity of this server."""

    server_id: str
    name: str
    urls: list[str]  # URLs of its leaf node listener
    port: int


class Introduction:
    """INFO and CONNECT of one server."""

    def __init__(self, settings: Settings, identity: Identity) -> None:
        """The settings are read at each use."""
        self._settings = settings
        self._identity = identity

    @property
    def _own(self) -> LeafNodes:
        return self._settings.leafnodes or LeafNodes()

    @property
    def domain(self) -> str:
        """The server's JetStream domain; empty without JetStream."""
        return self._settings.domain if self._settings.jetstream else ""

    @property
    def cluster(self) -> str:
        """The cluster name in CONNECT: a server with remotes gives its own name."""
        return self._identity.name.replace(" ", "_") if self._own.remotes else ""

    def info(self, node: LeafNode) -> Info:
        """The first INFO, for a server that has connected."""
        settings, own = self._settings, self._own
        return Info(
            server_id=self._identity.server_id,
            server_name=self._identity.name,
            version=COMPATIBLE_VERSION,
            proto=1,
            go=RUNTIME,
            host=own.host,
            port=self._identity.port,
            headers=True,
            auth_required=True,
            tls_required=own.tls is not None,
            tls_verify=own.tls is not None and own.tls.verify,
            max_payload=settings.max_payload,
            jetstream=settings.jetstream,
            client_id=node.connection.id,
            nonce=node.nonce,
            cluster=self.cluster,
            domain=self.domain,
            api_lvl=API_LEVEL,
            info_on_connect=True,
            leafnode_urls=[] if own.no_advertise else self._identity.urls,
            compression=own.compression if node.link or own.compression == "off" else "",
        )

    def connect(self, node: LeafNode, remote: LeafRemote, *, headers: bool) -> Connect:
        """The CONNECT to a hub after its first INFO. OSError or ValueError when credentials can't
        be read.
        """
        asked = Connect(
            compress_mode="" if node.compression == "not supported" else node.compression,
            version=COMPATIBLE_VERSION,
            server_id=self._identity.server_id,
            name=self._identity.name,
            domain=self.domain,
            is_hub=remote.hub,
            cluster=self.cluster,
            headers=headers,
            jetstream=self._settings.jetstream,
            deny_pub=remote.deny_imports or None,
            isolate=remote.request_isolation,
            remote_account=node.account_name,
            protocol=1,
        )
        negotiation.show(asked, remote.credentials, remote.nkey, node.nonce, node.url)
        return asked
