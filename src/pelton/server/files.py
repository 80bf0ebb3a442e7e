"""Files and limits of a running server: pid file, ports file, lock of the store folder, open files."""

import os
import resource
from collections.abc import Callable

from pelton.core.log.store_lock import NAME as LOCK
from pelton.core.log.store_lock import FolderInUse, FolderLock, make_private
from pelton.server.errors import StartError

PORTS_FILE_PREFIX = (
    "nats-server"  # tools that start a server look for this name, whatever the executable's name
)


def write_pid_file(path: str) -> None:
    """Write the process id, readable only by this user. StartError when that fails."""
    try:
        _replace(path, f"{os.getpid()}\n", 0o600)
    except OSError as problem:
        raise StartError(
            f"can't write pid file {path}: {problem.strerror}; choose another with -P"
        ) from None


def write_ports_file(folder: str, ports: dict[str, list[str]]) -> str:
    """Write the URLs in use as JSON into ``<folder>/nats-server_<pid>.ports``; returns its path.

    ports: URLs by service (nats, monitoring, websocket, cluster, leafnodes, profile); a service
    without URLs is left out. StartError when that fails.
    """
    path = os.path.join(folder, f"{PORTS_FILE_PREFIX}_{os.getpid()}.ports")
    import json

    try:
        _replace(path, json.dumps({name: urls for name, urls in ports.items() if urls}), 0o666)
    except OSError as problem:
        raise StartError(
            f"can't write ports file {path}: {problem.strerror}; "
            "choose another folder with --ports_file_dir"
        ) from None
    return path


def _replace(path: str, text: str, mode: int) -> None:
    """Write a file so that readers see it whole or not at all."""
    temporary = f"{path}.{os.getpid()}.new"
    remove_file(temporary)
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
    with open(os.open(temporary, flags, mode), "w", encoding="utf-8") as file:
        file.write(text)
    os.replace(temporary, path)


def remove_file(path: str) -> None:
    """Remove a file; ignored when it does not exist."""
    try:
        os.unlink(path)
    except OSError:
        return


class StoreInUseError(StartError):
    """Another server uses the store folder; `domain` is its JetStream domain."""

    domain = ""


def lock_store(folder: str, domain: str, warn: Callable[[str], object]) -> "StoreLock":
    """Lock the folder for the streams of a server of that JetStream domain. Raises StartError.

    Servers of different domains may share one configured folder: the second server gets its own
    folder inside, and keeps it at later starts, even when it starts alone.
    """
    _warn_of_other_store(folder, warn)
    inner = os.path.join(folder, f"domain_{domain}")
    if domain and os.path.isdir(inner):
        return StoreLock(inner, domain)
    try:
        return StoreLock(folder, domain)
    except StoreInUseError as problem:
        if not domain or problem.domain in ("", domain):
            raise
        warn(f"{problem}; this server stores its streams in {inner}")
        return StoreLock(inner, domain)


def _warn_of_other_store(folder: str, warn: Callable[[str], object]) -> None:
    """Warn when a new store would be around another one or inside it: `store_dir` was given before
    with `/jetstream` at its end, or without.
    """
    path = os.path.abspath(folder)
    if os.path.exists(os.path.join(path, LOCK)):
        return
    above, name = os.path.split(path)
    for other in [os.path.join(path, "jetstream"), *([above] if name == "jetstream" else [])]:
        if os.path.exists(os.path.join(other, LOCK)):
            warn(f"this server begins a new store in {folder}; there is another one in {other}")


class StoreLock:
    """Locks a store folder for this process, until close() or the end of the process."""

    def __init__(self, folder: str, domain: str = "") -> None:
        """Create the folder, readable only by this user, and lock it.

        StartError when the folder can't be used, StoreInUseError when another server has locked it.
        `domain` is stored for such servers.
        """
        self.folder = folder
        _refuse_foreign(folder)
        try:
            make_private(folder)
            self._lock = FolderLock(folder, domain)
        except FolderInUse as other:
            in_use = StoreInUseError(f"{other}; stop it or choose another folder with -sd")
            in_use.domain = other.domain
            raise in_use from None
        except (FileExistsError, NotADirectoryError):
            raise StartError(
                f"Can't start JetStream: storage directory is not a directory: {folder}; "
                "choose another with -sd"
            ) from None
        except OSError as problem:
            raise StartError(
                f"Can't start JetStream: could not create storage directory {folder}: "
                f"{problem.strerror}; choose another with -sd"
            ) from None

    def close(self) -> None:
        """Unlock the folder."""
        self._lock.close()


def _refuse_foreign(folder: str) -> None:
    """Refuse a nats-server's store: its folders look alike, but the files differ."""
    accounts = os.path.join(folder, "jetstream")
    try:
        for account in os.listdir(accounts):
            streams = os.path.join(accounts, account, "streams")
            for stream in os.listdir(streams):
                if os.path.exists(os.path.join(streams, stream, "meta.inf")):
                    raise StartError(
                        f"store folder {folder} contains streams of a nats-server, which this server "
                        "cannot read; choose another folder with -sd"
                    )
    except OSError:
        return  # no folder, or not readable: creating it reports the error


def raise_open_files(wanted: int) -> tuple[int, bool]:
    """Raise the soft limit of open files to the hard limit. Returns (the limit, whether it allows
    `wanted` descriptors).
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard == resource.RLIM_INFINITY:
        hard = max(soft, 1 << 20)
    if soft != resource.RLIM_INFINITY and soft < hard:
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
            soft = hard
        except (OSError, ValueError):
            return soft, soft >= wanted
    return soft, soft == resource.RLIM_INFINITY or soft >= wanted
