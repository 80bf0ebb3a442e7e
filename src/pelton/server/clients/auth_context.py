"""The inputs of a client's authentication: names in its certificate, cookies of its WebSocket,
users of its listener. Pure.
"""

from pelton.server.auth import AuthContext
from pelton.server.clients.client import WEBSOCKET
from pelton.server.settings import Settings

TYPE_CHECKING = False
if TYPE_CHECKING:
    from pelton.server.auth.connect_options import Credentials
    from pelton.server.clients.client import Client
    from pelton.server.transports.tls import TlsInfo


def auth_context(settings: Settings, client: "Client", cid: int) -> AuthContext:
    """The context of a client for the authenticator."""
    context = AuthContext(client.host, cid, client.kind, nonce=client.nonce)
    listener = settings.websocket.tls if client.kind == WEBSOCKET else settings.tls
    context.tls_map = listener is not None and listener.map
    if client.tls is not None:
        add_tls(context, client.tls)
    options = settings.websocket
    if client.kind == WEBSOCKET and options.auth_override:
        context.no_auth_user = options.no_auth_user
        context.single = options
    return context


def add_tls(context: AuthContext, tls: "TlsInfo") -> None:
    """Add the facts of the TLS handshake and, with verify_and_map, the names in the certificate."""
    context.tls = {"version": tls.version, "cipher": tls.cipher}
    if tls.peer_der:
        from ssl import DER_cert_to_PEM_cert

        context.tls["certs"] = [DER_cert_to_PEM_cert(tls.peer_der)]
    if not context.tls_map:
        return
    try:
        context.names = tuple(dict.fromkeys(name.text for name in tls.user_names()))
    except ValueError:
        return  # OpenSSL has verified the certificate, but its names can't be read: it names no user
    certificate = tls.certificate
    if certificate is not None:
        from pelton.server.transports.tls import same_subject

        context.same_subject = lambda name: same_subject(certificate, name)


def with_cookies(asked: "Credentials", client: "Client") -> "Credentials":
    """The credentials of CONNECT, with those of the WebSocket's cookies in place of absent ones."""
    cookies = client.cookies
    if cookies is None:
        return asked
    import msgspec

    return msgspec.structs.replace(
        asked,
        jwt=asked.jwt or cookies.jwt,
        user=asked.user or cookies.user,
        password=asked.password or cookies.password,
        auth_token=asked.auth_token or cookies.token,
    )


def has_guest(settings: Settings, kind: str) -> bool:
    """Whether the listener has a user for clients without credentials."""
    options = settings.websocket
    if kind == WEBSOCKET and options.auth_override:
        return bool(options.no_auth_user)
    return bool(settings.no_auth_user)


def must_log_in(settings: Settings, kind: str) -> bool:
    """Whether clients of a listener must authenticate."""
    return settings.auth_required or (kind == WEBSOCKET and settings.websocket.auth_override)
