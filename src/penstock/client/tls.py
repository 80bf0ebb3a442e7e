"""TLS settings of a client, from file names to an ``ssl.SSLContext``."""

from __future__ import annotations

import ssl

from penstock.errors import ConnectError

from .options import Server, TlsOptions


def begins_with_tls(server: Server, options: TlsOptions | None) -> bool:
    """Whether TLS comes before the server's first byte: for ``wss://`` and the option ``first``.

    Raises ConnectError when TLS is wanted and the URL is ``ws://``, which has none.
    """
    if server.websocket:
        if options is not None and not server.tls:
            raise ConnectError(f"TLS is wanted, but {server} has none: use wss://")
        return server.tls
    return options is not None and options.first


def make_context(options: TlsOptions | None) -> ssl.SSLContext:
    """The context for these settings (None: the system's trust).

    Raises ConnectError when a file cannot be used.
    """
    options = options or TlsOptions()
    try:
        context = ssl.create_default_context(cafile=options.ca_file)
        if options.cert_file:
            context.load_cert_chain(options.cert_file, options.key_file)
    except (OSError, ssl.SSLError) as error:
        raise ConnectError(f"cannot use the TLS settings {options}: {error}") from error
    if not options.verify:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    return context
