"""TLS settings of a client, from file names to an ``ssl.SSLContext``."""

from __future__ import annotations

import ssl

from pelton.errors import ConnectError

from ..base.addresses import Server, TlsOptions


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
    used = f"the trusted certificates {options.ca_file}"
    try:
        context = ssl.create_default_context(cafile=options.ca_file)
        if options.cert_file:
            key = f" with the key {options.key_file}" if options.key_file else ""
            used = f"the certificate {options.cert_file}{key}"
            context.load_cert_chain(options.cert_file, options.key_file)
    except (OSError, ssl.SSLError) as error:
        reason = (
            error.strerror or error.reason if isinstance(error, ssl.SSLError) else error.strerror
        )
        raise ConnectError(f"cannot use {used}: {reason or error}") from error
    if not options.verify:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    return context
