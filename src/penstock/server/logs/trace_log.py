"""The trace log (``-V``): one line for each protocol operation of clients and server.

    127.0.0.1:40222 - cid:5 - <<- [PUB orders.new 8]
    127.0.0.1:40222 - cid:5 - <<- MSG_PAYLOAD: ["42 bolts"]

Without ``-V`` the reactor's tracer is None and nothing of this runs. Of CONNECT, only fields that are
known not to be secret are shown.
"""

import json
from collections.abc import Callable

from penstock.core.base.quoting import quoted
from penstock.core.broker.reactor import Connection
from penstock.server.logs.log import Log
from penstock.server.settings import Settings

REDACTED = "[REDACTED]"
# What a CONNECT may say without telling a secret: of clients, then of leaf nodes.
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
_LOGIN = b"$SYS.REQ.USER.AUTH "  # a request of an auth callout: it has what CONNECT said
_IN, _OUT = "<<-", "->>"


class TraceLog:
    """Writes a line for each operation."""

    def __init__(self, log: Log, settings: Settings, label: Callable[[Connection], str]) -> None:
        """label(connection) is how lines about it begin; settings are looked at anew each time."""
        self._log = log
        self._settings = settings
        self._label = label

    def received(self, connection: Connection, line: bytes, body: bytes | None, hlen: int) -> None:
        """A client's operation."""
        word, _, rest = line.partition(b" ")
        if word == b"CONNECT":
            line = b"CONNECT " + without_secrets(rest)
        label = self._label(connection)
        self._log.trace(f"{label} - {_IN} [{line.decode('utf-8', 'backslashreplace')}]")
        if body is not None:
            secret = rest.startswith(_LOGIN)
            self._payload(label, _IN, body, hlen, secret=secret)

    def sent(self, connection: Connection, data: bytes) -> None:
        """The server's operations, whole ones."""
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
            elif words[0] == "CONNECT":  # ours, to another server
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
    """The JSON of a CONNECT without what is, or may be, a secret: a field that the protocol does not
    know has its name shown alone, since a password is often written under another name. The user of
    a URL without a password may be its token: a value that stands in a secret field, too, is one.
    What is no JSON object is not shown at all.
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
    """Whether a field tells nothing: it is on or off, empty, or known and not nested."""
    if not value or value is True:
        return True
    plain = value if isinstance(value, list) else [value]
    return key.lower() in _HARMLESS and all(isinstance(each, str | int | float) for each in plain)
