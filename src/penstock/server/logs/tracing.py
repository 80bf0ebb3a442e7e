"""Trace lines: what clients and server say to each other, operation by operation, with ``-V``.

    127.0.0.1:40222 - cid:5 - <<- [PUB orders.new 8]
    127.0.0.1:40222 - cid:5 - <<- MSG_PAYLOAD: ["42 bolts"]

A server that does not trace has none of this: the hub's tracer is None. Secrets of CONNECT are left
out. Knows nothing of accounts or of what operations do.
"""

import json
import re
from collections.abc import Callable

from penstock.core.hub import Connection
from penstock.server.logs.log import Log
from penstock.server.settings import Settings

REDACTED = "[REDACTED]"
_SECRETS = frozenset({"pass", "auth_token", "jwt", "sig"})
_IN, _OUT = "<<-", "->>"
_ESCAPES = {0x22: '\\"', 0x5C: "\\\\", 0x0A: "\\n", 0x0D: "\\r", 0x09: "\\t"}
_ODD = re.compile('[\x00-\x1f\x7f"\\\\\udc80-\udcff]')  # the last: bytes that are no UTF-8


class Tracer:
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
            self._payload(label, _IN, body, hlen)

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
                self._payload(label, _OUT, data[at : at + size], hlen)
                at += size + 2

    def _payload(self, label: str, arrow: str, body: bytes, hlen: int) -> None:
        if self._settings.trace_headers:
            body = body[: max(hlen - 4, 0)]
        if not body:
            return
        most = self._settings.max_traced_msg_len
        more = "..." if 0 < most < len(body) else ""
        shown = quoted(body[:most] if more else body)
        self._log.write("TRC", f'{label} - {arrow} MSG_PAYLOAD: ["{shown}{more}"]')


def quoted(data: bytes) -> str:
    """Bytes as they stand between the quotes of a Go string."""
    text = data.decode("utf-8", "surrogateescape")
    return _ODD.sub(
        lambda found: _ESCAPES.get(ord(found[0]), f"\\x{ord(found[0]) & 255:02x}"), text
    )


def without_secrets(text: bytes) -> bytes:
    """The JSON of a CONNECT, its secrets replaced; what is no JSON object is not shown at all. The
    user of a URL without a password may be its token: then it is one of the secrets.
    """
    try:
        fields = json.loads(text)
    except (ValueError, RecursionError):
        fields = None
    if not isinstance(fields, dict):
        return b"<not a JSON object>"
    secrets = [value for key, value in fields.items() if key.lower() in _SECRETS and value]
    shown = {
        key: REDACTED if value and (key.lower() in _SECRETS or value in secrets) else value
        for key, value in fields.items()
    }
    return json.dumps(shown, separators=(",", ":"), ensure_ascii=False).encode(
        "utf-8", "backslashreplace"
    )
