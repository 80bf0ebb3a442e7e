"""What Spark takes for Python: has serve.py fork the process that Spark wants, and lives as long as it.

Imports little, because it starts with every process of Spark's.
"""

import _signal
import _socket
import marshal
import os
import sys
import time

PATIENCE_S = 60.0
SCM_RIGHTS = 1


def connected(path):
    """A connection to serve.py; None when it does not run."""
    connection = _socket.socket(_socket.AF_UNIX, _socket.SOCK_STREAM)
    try:
        connection.connect(path)
    except OSError:
        connection.close()
        return None
    return connection


def started(path, folder, python, serve, owner):
    """A connection to serve.py, which is started once; None when it does not come up."""
    import fcntl

    with open(os.path.join(folder, "lock"), "ab") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if (connection := connected(path)) is not None:
            return connection
        server = os.fork()
        if not server:
            os.setsid()
            log = os.open(os.path.join(folder, "log"), os.O_WRONLY | os.O_CREAT | os.O_APPEND)
            for number, file in enumerate((os.open(os.devnull, os.O_RDONLY), log, log)):
                os.dup2(file, number)
            os.closerange(3, 256)
            # As Spark has it for its workers; a hash must be the same in all of them.
            environment = {**os.environ, "PYTHONHASHSEED": "0", "OPENBLAS_NUM_THREADS": "1"}
            os.execve(python, [python, serve, path, owner], environment)
        end = time.monotonic() + PATIENCE_S
        while time.monotonic() < end and not os.waitpid(server, os.WNOHANG)[0]:
            if (connection := connected(path)) is not None:
                return connection
            time.sleep(0.02)
    return None


def main():
    folder, python, serve, owner, *words = sys.argv[1:]
    wanted = words[:1] == ["-m"] and words[1].startswith("pyspark.")
    path = os.path.join(folder, "socket")
    connection = None
    if wanted and os.path.isdir(folder):
        connection = connected(path) or started(path, folder, python, serve, owner)
    if connection is None:
        os.execv(python, [python, *words])
    _signal.signal(_signal.SIGTERM, lambda *_: connection.send(b"T"))
    asked = marshal.dumps((words[1:], dict(os.environ), os.getcwd()))
    pipes = b"".join(number.to_bytes(4, sys.byteorder) for number in range(3))
    rights = [(_socket.SOL_SOCKET, SCM_RIGHTS, pipes)]
    connection.sendmsg([len(asked).to_bytes(4, "big")], rights)
    connection.sendall(asked)
    status = connection.recv(2)  # nothing when serve.py is gone
    code = int.from_bytes(status, "big", signed=True) if status else 1
    if code < 0:
        _signal.signal(-code, _signal.SIG_DFL)
        os.kill(os.getpid(), -code)
    os._exit(code & 255)


main()
