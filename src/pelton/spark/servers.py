"""The connection options of every format: servers, credentials, and how long to try.

Does not depend on Spark, and opens no connection: :mod:`pelton.spark.connection` does.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import TYPE_CHECKING

from pelton.spark.parsing import (
    DEFAULT_SERVER,
    OptionError,
    Row,
    duration,
    flag,
    servers,
    text,
)

if TYPE_CHECKING:
    from collections.abc import Mapping


@dataclass(frozen=True, kw_only=True)
class Servers:
    """Where and how to connect; picklable, since it travels to the executors. None means "not
    given".
    """

    urls: tuple[str, ...] = (DEFAULT_SERVER,)
    user: str | None = None
    password: str | None = None
    token: str | None = None
    creds: str | None = None
    nkey: str | None = None
    jwt: str | None = None
    tls_ca: str | None = None
    tls_cert: str | None = None
    tls_key: str | None = None
    tls_hostname: str | None = None
    tls_first: bool = False
    inbox_prefix: str | None = None
    domain: str | None = None
    api_prefix: str | None = None
    request_timeout_seconds: float = 10.0
    retry_timeout_seconds: float = 60.0

    def __repr__(self) -> str:
        """Every field but the secrets, so that plans and errors can show it."""
        shown = (
            f"{field.name}={'***' if value and field.name in _SECRETS else value!r}"
            for field in fields(self)
            if (value := getattr(self, field.name)) != field.default
        )
        return f"Servers({', '.join(shown)})"

    def __str__(self) -> str:
        """The addresses, without the credentials that a URL may have."""
        return ", ".join(url.rpartition("@")[2] if "@" in url else url for url in self.urls)


SERVER_ROWS: tuple[Row, ...] = (
    Row("servers", "urls", servers, "Addresses of the servers, with commas between."),
    Row("user", "user", text, "User name to connect with."),
    Row("password", "password", text, "Password to connect with.", secret=True),
    Row(
        "token",
        "token",
        text,
        "Token to connect with, instead of a user and a password.",
        secret=True,
    ),
    Row("creds", "creds", text, "A .creds file to connect with, on the driver and every executor."),
    Row("nkey", "nkey", text, "The seed of an nkey user, or the file it is in.", secret=True),
    Row("jwt", "jwt", text, "A user's JWT, with nkey; alone, that of a bearer.", secret=True),
    Row("tlsCa", "tls_ca", text, "File of the certificates to trust, instead of the system's."),
    Row("tlsCert", "tls_cert", text, "File of the client's own certificate."),
    Row("tlsKey", "tls_key", text, "File of the key of tlsCert."),
    Row("tlsHostname", "tls_hostname", text, "Name to verify, instead of the address's host."),
    Row("tlsFirst", "tls_first", flag, "Shake hands before the server speaks."),
    Row("inboxPrefix", "inbox_prefix", text, "First tokens of inboxes, instead of _INBOX."),
    Row("domain", "domain", text, "JetStream domain to ask, behind a leaf node."),
    Row("apiPrefix", "api_prefix", text, "Subject prefix of the API, instead of $JS.API."),
    Row("requestTimeout", "request_timeout_seconds", duration, "How long one request may take."),
    Row(
        "retryTimeout",
        "retry_timeout_seconds",
        duration,
        "How long a server that was lost is tried again before the work fails.",
    ),
)
_SECRETS = frozenset({"password", "token", "nkey", "jwt", "urls"})
_FIELDS = frozenset(row.field for row in SERVER_ROWS)


def take_servers(values: dict[str, object]) -> Servers:
    """Take the connection options out of parsed options ``values``.

    Raises :class:`OptionError` for options that contradict one another.
    """
    mine: Mapping[str, object] = {name: values.pop(name) for name in _FIELDS & values.keys()}
    made = Servers(**mine)  # type: ignore[arg-type]  # each row's reader makes its field's type
    if made.token is not None and made.user is not None:
        raise OptionError("give either token, or user and password")
    if made.password is not None and made.user is None:
        raise OptionError("password is given without user")
    if made.creds is not None and (made.nkey is not None or made.jwt is not None):
        raise OptionError("give either creds, or nkey and jwt")
    if (made.tls_cert is None) != (made.tls_key is None):
        raise OptionError("tlsCert and tlsKey go together")
    if made.domain is not None and made.api_prefix is not None:
        raise OptionError("give either domain or apiPrefix")
    return made
