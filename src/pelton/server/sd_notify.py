"""Notifications to systemd (sd_notify): READY=1, RELOADING=1, STOPPING=1.

Only a unit of Type=notify sets NOTIFY_SOCKET; without it, no notification is sent.
"""

import os
import socket


def notify(state: str) -> None:
    """Send a state to systemd, if NOTIFY_SOCKET is set. Never raises."""
    address = os.environ.get("NOTIFY_SOCKET", "")
    if not address.startswith(("/", "@")):
        return
    path = "\0" + address[1:] if address.startswith("@") else address
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as told:
            told.setblocking(False)
            told.sendto(state.encode(), path)
    except OSError:
        return
