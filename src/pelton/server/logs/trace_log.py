"""The trace log (``-V``): one line for each protocol operation of clients and server.

    127.0.0.1:40222 - cid:5 - <<- [PUB orders.new 8]
    127.0.0.1:40222 - cid:5 - <<- MSG_PAYLOAD: ["42 bolts"]

Without ``-V`` the reactor's tracer is None, and this module is not called. Lines of CONNECT have
only fields that are known not to be secret.
"""

import json
from collections.abc import Callable

from pelton.core.base.quoting import quoted
from pelton.core.broker.reactor import Connection
from pelton.server.logs.log import Log
from pelton.server.settings import Settings

REDACTED = "[REDACTED]"
# Fields of CONNECT without secrets: of clients, then of leaf nodes.
_HARMLESS = frozenset(
    [
        "verbose",
        "pedantic",
        "echo",
        "headers",
        "no_responders",
        "protocol",
        "name",
        "lang",
        "version",
        "user",
        "tls_required",
        "ssl_required",
        "account",
        "new_account",
        "nkey",
        "server_id",
        "domain",
        "is_hub",
        "cluster",
        "jetstream",
        "deny_pub",
        "isolate",
        "compress_mode",
        "compression",
        "gateway",
        "remote_account",
        "hub",
    ]
)
_LOGIN = b"$SYS.REQ.USER.AUTH "  # an auth callout's request, which contains the fields of CONNECT
_IN, _OUT = "<<-", "->>"


class TraceLog:
    """Writes a line for each operation."""

    def __init__(self, log: Log, settings: Settings, label: Callable[[Connection], str]) -> None:
        """label(connection) is the beginning of its log lines; the settings are read at each use."""
        self._log = log
        self._settings = settings
        self._label = label

    def received(self, connection: Connection, line: bytes, body: bytes | None, hlen: int) -> None:
        """Log an operation of a client."""
        word, _, rest = line.partition(b" ")
        if word == b"CONNECT":
            line = b"CONNECT " + without_secrets(rest)
        label = self._label(connection)
        self._log.trace(f"{label} - {_IN} [{line.decode('utf-8', 'backslashreplace')}]")
        if body is not None:
            secret = rest.startswith(_LOGIN)
            self._payload(label, _IN, body, hlen, secret=secret)

    def sent(self, connection: Connection, data: bytes) -> None:
        """Log complete operations of the server."""
        label = self._label(connection)
        at = 0
        while at < len(data):
            end = data.find(b"\r\n", at)
            if end < 0:
                end = len(data)
            line = data[at:end].decode("utf-8", "backslashreplace").rstrip(" ")
            at = end + 2
            words = line.split(" ")
            if words[0] == "-ERR":
                line = line.replace("'", "")
            elif words[0] == "CONNECT":  # from this server to another one
                shown = without_secrets(line[8:].encode("utf-8"))
                line = "CONNECT " + shown.decode("utf-8", "backslashreplace")
            self._log.trace(f"{label} - {_OUT} [{line}]")
            if words[0] in ("MSG", "HMSG", "LMSG", "HLMSG") and words[-1].isdigit():
                size = int(words[-1])
                hlen = int(words[-2]) if words[0].startswith("H") else 0
                secret = words[1].encode() + b" " == _LOGIN
                self._payload(label, _OUT, data[at : at + size], hlen, secret=secret)
                at += size + 2

    def _payload(
        self, label: str, arrow: str, body: bytes, hlen: int, *, secret: bool = False
    ) -> None:
        if secret:
            self._log.trace(f"{label} - {arrow} MSG_PAYLOAD: [{REDACTED}]")
            return
        if self._settings.trace_headers:
            body = body[: max(hlen - 4, 0)]
        if not body:
            return
        most = self._settings.max_traced_msg_len
        more = "..." if 0 < most < len(body) else ""
        shown = quoted(body[:most] if more else body)[:-1]
        self._log.write("TRC", f'{label} - {arrow} MSG_PAYLOAD: [{shown}{more}"]')


def without_secrets(text: bytes) -> bytes:
    """The JSON of a CONNECT without fields that are or may be secrets.

    Of an unknown field only the name is shown, because passwords are often sent under other names.
    The user of a URL without a password may be a token: a value that equals that of a secret field
    is a secret too. Text that is not a JSON object is not shown at all.
    """
    try:
        fields = json.loads(text)
    except (ValueError, RecursionError):
        fields = None
    if not isinstance(fields, dict):
        return b"<not a JSON object>"
    secrets = {str(value) for key, value in fields.items() if not _harmless(key, value)}
    shown = {
        key: value if _harmless(key, value) and str(value) not in secrets else REDACTED
        for key, value in fields.items()
    }
    return json.dumps(shown, separators=(",", ":"), ensure_ascii=False).encode(
        "utf-8", "backslashreplace"
    )


def _harmless(key: str, value: object) -> bool:
    """Whether a field may be shown: it is a boolean, empty, or known and not nested."""
    if not value or value is True:
        return True
    plain = value if isinstance(value, list) else [value]
    return key.lower() in _HARMLESS and all(isinstance(each, str | int | float) for each in plain)
