"""Read a partition from the segment files of a Pelton store that the executor can see.

The reader holds the folder as it is at one moment (core/base/readonly_disk) and opens it as a start of
the server does (core/log/segment_reader): it leaves out removed messages and unfinished writes. It takes
only messages that the server reported, up to the end of the partition; messages that are not in the
files yet come over the network.

    <store>/jetstream/<account>/streams/<stream>/meta.json, key.0, key.1, log/
    <store>/domain_<domain>/jetstream/...

It finds the stream by its name and creation time, so it never reads the folder of another stream.
The key in PELTON_STORE_KEY opens encrypted stores. Does not depend on Arrow or Spark.
"""

from __future__ import annotations

import contextlib
import os
import resource
from typing import TYPE_CHECKING

import msgspec

from pelton.core.base.readonly_disk import ReadOnlyDisk
from pelton.core.bulk.columns import Columns
from pelton.core.log.encryption import LogLocked
from pelton.core.log.segment_reader import LogReader
from pelton.spark.reading.consumers import BATCH_BYTES
from pelton.spark.reading.plan import UnfitError
from pelton.vault import Vault, VaultError, is_sealed

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator

    from pelton.spark.reading.one_range import Reading
    from pelton.spark.reading.plan import ReadPlan
    from pelton.vault import StreamCipher

KEY = "PELTON_STORE_KEY"
_HANDLES_SPARE = 64
_LOOKS_AT_DAMAGE = 3
_META = ("meta.json", "meta.json.copy")
_KEYS = ("key.0", "key.1")
_folders: dict[tuple[str, str, str], str] = {}


class _Meta(msgspec.Struct):
    """The needed fields of a stream's meta.json."""

    created: str = ""


def read(reading: Reading) -> Iterator[Columns]:
    """Read the rest of a partition that is in the files, in batches.

    Raises UnfitError when the files cannot be read, or when the next messages are not in them.
    """
    reading.look()
    try:
        for _ in range(_LOOKS_AT_DAMAGE):
            if (yield from _read_held(reading)):
                return
    except LogLocked as error:
        raise UnfitError(f"{error.strerror or error}; its key is looked for in {KEY}") from error
    except VaultError as error:
        raise UnfitError(f"its files cannot be decrypted with {KEY}: {error}") from error
    except OSError as error:
        raise UnfitError(f"its files cannot be read: {error}") from error
    raise UnfitError(f"there are damaged bytes in the files in {reading.plan.segments}")


def _read_held(reading: Reading) -> Generator[Columns, None, bool]:
    """Read from the folder as it is at one moment; returns False when there were damaged bytes.

    A message that the server is just erasing looks damaged, but only for a moment.
    """
    disk = ReadOnlyDisk()
    folder = _folder_of(disk, reading.plan)
    log = f"{folder}/log"
    _make_room(disk, log)
    if not disk.hold(log):
        raise UnfitError(f"{folder} has no messages")
    try:
        cipher = _cipher_of(disk, folder)
        reader = LogReader(disk, log, quick=True, survey=False, cipher=cipher)
        try:
            return (yield from _fill(reading, reader))
        finally:
            reader.close()
    finally:
        disk.release(log)
        reading.front = None


def _fill(reading: Reading, reader: LogReader) -> Generator[Columns, None, bool]:
    plan = reading.plan
    patterns = tuple(each.encode("utf-8", "surrogateescape") for each in plan.subjects)
    reading.front = reader.log.first_seq
    reader.seek(reading.position)
    last = min(reading.last, reader.log.last_seq)
    more = reading.position <= last
    while more:
        columns = Columns(plan.batch_rows, BATCH_BYTES)
        more = reader.fill(
            columns,
            upto=last,
            patterns=patterns,
            since_ns=plan.not_before_ns,
            until_ns=plan.not_after_ns,
        )
        if reader.damages:
            return False
        if columns.count:
            yield columns
    reading.pass_over(last)
    if not reading.over:
        raise UnfitError  # the server has more messages that are not in the files yet
    return True


# -- the folder of the stream -------------------------------------------------------------------


def _folder_of(disk: ReadOnlyDisk, plan: ReadPlan) -> str:
    key = (str(plan.segments), plan.stream, plan.born)
    known = _folders.get(key)
    if known is not None and disk.is_dir(known):
        return known
    path = key[0].rstrip("/") or "/"
    if not disk.is_dir(path):
        raise UnfitError(f"there is no folder {path}")
    found = [each for each in _candidates(disk, path, plan.stream) if _is(disk, each, plan)]
    if not found:
        raise UnfitError(
            f"its folder is not in {path}, or the folder there is of another stream of this name"
        )
    _folders[key] = found[0]
    return found[0]


def _candidates(disk: ReadOnlyDisk, path: str, stream: str) -> Iterator[str]:
    """Folders that may be the stream's: the path itself, or those of its name in the store."""
    if disk.exists(f"{path}/meta.json") and disk.is_dir(f"{path}/log"):
        yield path
        return
    roots = [path, *(f"{path}/{name}" for name in disk.list_dir(path) if name[:7] == "domain_")]
    for root in roots:
        for account in disk.list_dir(f"{root}/jetstream"):
            inner = f"{root}/jetstream/{account}/streams"
            names = disk.list_dir(inner)
            # Folder names are escaped for names with other letters than these; such folders are
            # few.
            likely = [name for name in names if name == stream or "%" in name]
            yield from (f"{inner}/{name}" for name in likely)


def _is(disk: ReadOnlyDisk, folder: str, plan: ReadPlan) -> bool:
    """Whether the folder holds the stream that was created at that time."""
    for name in _META:
        with contextlib.suppress(OSError, msgspec.MsgspecError):
            data = disk.read_file(f"{folder}/{name}")
            if is_sealed(data):
                cipher = _cipher_of(disk, folder)
                if cipher is None:
                    raise UnfitError(f"its files are encrypted, and there is no {KEY}")
                data = cipher.open("meta.json", data)
            text = data.partition(b"\n")[0]
            return msgspec.json.decode(text, type=_Meta).created == plan.born
    return False


def _cipher_of(disk: ReadOnlyDisk, folder: str) -> StreamCipher | None:
    """The data keys of the stream; None when it is not encrypted, or when there is no key to try."""
    vault = Vault.of(os.environ.get(KEY, ""), random=os.urandom)
    copies = [f"{folder}/{name}" for name in _KEYS if disk.exists(f"{folder}/{name}")]
    if vault is None or not copies:
        return None
    return vault.open(disk.read_file(copy) for copy in copies)


def _make_room(disk: ReadOnlyDisk, folder: str) -> None:
    """Raise the limit of open files so that it has room for the folder's files, if the process may."""
    needed = len(disk.list_dir(folder)) + _HANDLES_SPARE
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != resource.RLIM_INFINITY and soft < 2 * needed:
        wanted = 2 * needed if hard == resource.RLIM_INFINITY else min(hard, 2 * needed)
        with contextlib.suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, wanted), hard))
