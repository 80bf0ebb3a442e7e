"""Runs one command in a private network and process namespace, where nothing else is.

``python inside.py FILE``: FILE is JSON with folder, command, variables, log and seconds. Called by
``run`` through ``unshare``: fixed ports can't clash with anybody's, and servers that a test leaves
behind die with the namespace. In it there are a loopback, an address that is not one (a server that
listens everywhere tells its clients such addresses), and both families of localhost.
"""

import contextlib
import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile

OUTSIDE_ADDRESS = "192.0.2.1/32"


def main(path: str) -> int:
    """Set the namespace up and run; the command's exit status."""
    with open(path, encoding="utf-8") as file:
        job = json.load(file)
    if job["private"]:
        _network()
        _hosts()
    try:
        with open(job["log"], "wb") as log:
            done = subprocess.run(
                job["command"],
                cwd=job["folder"],
                env={**os.environ, **job["variables"]},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                timeout=job["seconds"],
                check=False,
            )
        return done.returncode
    except subprocess.TimeoutExpired:
        return 124


def _network() -> None:
    tool = shutil.which("ip")
    if tool is None:
        raise SystemExit("a private network needs the command `ip` (iproute2)")
    subprocess.run([tool, "link", "set", "lo", "up"], check=True)
    subprocess.run([tool, "addr", "add", OUTSIDE_ADDRESS, "dev", "lo"], check=True)


def _hosts() -> None:
    with tempfile.NamedTemporaryFile("w", delete=False) as hosts:
        hosts.write("127.0.0.1 localhost\n::1 localhost ip6-localhost ip6-loopback\n")
        hosts.write(f"127.0.0.1 {socket.gethostname()}\n")
    os.chmod(hosts.name, 0o644)
    subprocess.run(["mount", "--bind", hosts.name, "/etc/hosts"], check=False)
    with contextlib.suppress(OSError):
        os.unlink(hosts.name)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
