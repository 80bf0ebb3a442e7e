"""A server that answers from stored streams: a store folder, or a backup. It writes nothing there.

finding   what is at a path: a store, a backup of a store, backups of single streams
mapped    files under other names, opened for reading; those of a running server as of one moment
server    the server of this process over these files: nothing in it expires or is delivered by itself
"""

from .finding import NotStoredError
from .server import StoredServer

__all__ = ["NotStoredError", "StoredServer"]
