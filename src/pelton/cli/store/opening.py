"""Opening a store folder that the user names: its key, the limit of open files, and the server of its streams."""

from __future__ import annotations

import contextlib
import os
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from pelton.embedded.stored import StoredServer
    from pelton.vault import Vault

KEY = "PELTON_STORE_KEY"


def vault() -> Vault | None:
    """The keys of an encrypted store, from the environment."""
    key = os.environ.get(KEY, "")
    if not key:
        return None
    from pelton.vault import Vault, VaultError

    try:
        return Vault.of(key, random=os.urandom)
    except VaultError as problem:
        raise click.ClickException(str(problem)) from None


def key_of_store() -> str:
    """The key of an encrypted store, from the environment, "" for none; ClickException for a bad one."""
    vault()
    return os.environ.get(KEY, "")


def more_files() -> None:
    """Raise the limit of open files: a store in use is held open while it is read."""
    import resource

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        with contextlib.suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def serve(store: str, *, account: str, domain: str, backup: str) -> StoredServer:
    """The server of the streams in a store folder or a backup; it ends with the command.

    Raises NotStoredError, StoreError, VaultError, OSError.
    """
    from pelton.embedded.stored import StoredServer

    more_files()
    key = key_of_store()
    server = StoredServer(store, account=account, domain=domain, backup=backup, key=key)
    context = click.get_current_context(silent=True)
    if context is not None:
        context.find_root().call_on_close(server.close)
    return server


def is_store(path: str) -> bool:
    """Whether a path is a store folder, or the folder above one; else only ``serve`` may read it."""
    from pelton.core.base.readonly_disk import ReadOnlyDisk
    from pelton.store.layout import is_store as found

    return os.path.isdir(path) and found(ReadOnlyDisk(), path)
