"""``pelton serve`` without a configuration file: a server for the programs of this machine, and what to type next.

The streams are in the user's data folder. Does not depend on the command line's packages.
"""

import os
import sys
from collections.abc import Mapping

from pelton.server.errors import StartError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

HOST = "127.0.0.1"
USUAL_URL = "nats://127.0.0.1:4222"
_LOGGING = frozenset({"log_file", "log_format", "syslog", "remote_syslog", "debug", "trace"})
_LOGIN = frozenset({"user", "token"})


def local(given: "dict[str, Any]", environ: Mapping[str, str]) -> "dict[str, Any]":
    """The settings of a server on loopback with JetStream; those that were given win.

    StartError when there is no folder for the streams.
    """
    chosen = {"host": HOST, "jetstream": True, **given}
    if chosen["jetstream"] and "store_dir" not in given:
        chosen["store_dir"] = data_folder(environ)
    return chosen


def data_folder(environ: Mapping[str, str]) -> str:
    """The user's folder for Pelton's data: ``$XDG_DATA_HOME/pelton``, ``~/.local/share/pelton``."""
    home = environ.get("XDG_DATA_HOME", "")
    if not os.path.isabs(home):  # the standard says to ignore it then
        user = os.path.expanduser("~")
        if not os.path.isabs(user):
            raise StartError("there is no home folder to keep streams in; choose one with -sd")
        home = os.path.join(user, ".local", "share")
    return os.path.join(home, "pelton")


def wants_log(given: "dict[str, Any]") -> bool:
    """Whether an option asks for the log; otherwise its normal events are left out."""
    return not _LOGGING.isdisjoint(given)


def greeting(
    url: str, store: str, given: "dict[str, Any]", program: str, environ: Mapping[str, str]
) -> str:
    """What a server that is ready prints: its URL, its store, and three lines to type.

    `program` is how the user types the command `pelton`.
    """
    where = f"Its streams are in {store}" if store else "It has no JetStream"
    lines = [f"Pelton serves NATS clients at {url}", where, ""]
    if _LOGIN.isdisjoint(given) and url.startswith("nats:"):
        server = "" if url == USUAL_URL and not _elsewhere(environ) else f" -s {url}"
        lines.append("Now type, in another terminal:")
        if store:
            lines.append(f"  {program} stream add ORDERS --subjects 'orders.>' --defaults{server}")
        ack, begin = (" -J", " --all") if store else ("", "")
        lines.append(f"  {program} pub{ack} orders.new '42 bolts'{server}")
        lines.append(f"  {program} sub 'orders.>'{begin}{server}")
        lines.append("")
    kept = "; the streams stay" if store else ""
    return "\n".join([*lines, f"Ctrl-C stops the server{kept}.", ""])


def _elsewhere(environ: Mapping[str, str]) -> bool:
    """Whether the command line asks another server by itself: that of a variable, or of the selected context."""
    config = environ.get("XDG_CONFIG_HOME") or os.path.join(os.path.expanduser("~"), ".config")
    selected = os.path.join(config, "nats", "context.txt")
    return any(environ.get(name) for name in ("NATS_URL", "NATS_CONTEXT")) or os.path.exists(
        selected
    )


def program_typed() -> str:
    """How the user of this process types the command `pelton` in another terminal."""
    import shlex
    from shutil import which

    if f"{os.sep}archive-v0{os.sep}" in sys.prefix:  # the environments that `uvx` makes
        return "uvx pelton"
    script = sys.argv[0]
    found = which("pelton")
    if found is not None and os.path.dirname(found) == os.path.dirname(os.path.abspath(script)):
        return "pelton"
    if os.path.basename(script) != "pelton":
        return f"{shlex.quote(sys.executable)} -m pelton.cli"
    return shlex.quote(script if os.sep in script else f".{os.sep}{script}")
