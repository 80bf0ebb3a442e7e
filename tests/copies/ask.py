"""A program of Pelton's in a shell: has serve.py make the copy that is it, and lives as long.

Imports little, because it starts with every command: ``python -SEI ask.py SOCKET MODULE ARGUMENT...``
"""

import _signal
import _socket
import marshal
import os
import sys

SCM_RIGHTS = 1
SIGNALS = (_signal.SIGINT, _signal.SIGTERM, _signal.SIGHUP, _signal.SIGUSR1, _signal.SIGUSR2)


def main():
    path, module, *arguments = sys.argv[1:]
    connection = _socket.socket(_socket.AF_UNIX, _socket.SOCK_STREAM)
    connection.connect(path)
    for number in SIGNALS:
        _signal.signal(number, lambda number, _: connection.send(bytes([number])))
    asked = ("guest", module, arguments, dict(os.environ), os.getcwd(), False, False)
    data = marshal.dumps(asked)
    files = b"".join(number.to_bytes(4, sys.byteorder) for number in range(3))
    rights = [(_socket.SOL_SOCKET, SCM_RIGHTS, files)]
    connection.sendmsg([len(data).to_bytes(4, "big")], rights)
    connection.sendall(data)
    status = connection.recv(2)  # nothing when serve.py is gone
    code = int.from_bytes(status, "big", signed=True) if status else 1
    if code < 0:
        _signal.signal(-code, _signal.SIG_DFL)
        os.kill(os.getpid(), -code)
    os._exit(code & 255)


main()
