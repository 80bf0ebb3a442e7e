"""Open catalogs, find and create tables, and keep secrets out of errors.

Each process opens a catalog once, and again when the catalog's file was replaced, as by a backup. It
loads a table from the catalog at each use, because other processes change it. A property of a catalog
may be a password, and ``pyiceberg`` puts properties into its errors, as the libraries below it do with
addresses. So every error passes through :func:`failed`, which removes the values of properties.

Does not depend on Spark, rows or marks.
"""

from __future__ import annotations

import contextlib
import re
import threading
from pathlib import Path
from typing import TYPE_CHECKING

from pyiceberg.catalog import load_catalog
from pyiceberg.exceptions import (
    CommitFailedException,
    NamespaceAlreadyExistsError,
    NoSuchNamespaceError,
    NoSuchTableError,
    TableAlreadyExistsError,
)
from pyiceberg.io.pyarrow import PyArrowFileIO

from pelton.spark.iceberg.data_files import DataFolder
from pelton.spark.iceberg.durable import NAME as DURABLE
from pelton.spark.tables.places import TableError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    import pyarrow as pa
    from pyiceberg.catalog import Catalog
    from pyiceberg.io import FileIO
    from pyiceberg.table import Table

    from pelton.spark.iceberg.options import Address

_IO = "py-io-impl"
# Merge manifests and remove old metadata files, because each commit creates one of both.
_OF_NEW_TABLES = {
    "format-version": "2",
    "commit.manifest-merge.enabled": "true",
    "write.metadata.delete-after-commit.enabled": "true",
    "write.parquet.compression-codec": "zstd",
}
# Properties whose values errors may show, and those whose values they never show, however short.
_TOLD = re.compile(r"type|uri|warehouse|prefix|scope|py-[a-z-]+|.*(region|endpoint)")
_SECRET = re.compile(r".*(secret|token|password|credential|key|sas|auth|sign).*")
_SHORT = 4
_CATALOGS_OWN = re.compile(r"uri|token|credential|password|(auth|oauth2|rest|header)[.-].*")

# Each catalog with the identity of its file when it was opened, if it is in a file.
_catalogs: dict[Address, tuple[Catalog, object]] = {}
_SQLITE = re.compile(r"sqlite(?:\+\w+)?:///(.+?)(?:\?.*)?")
_lock = threading.Lock()


def catalog_of(address: Address) -> Catalog:
    """The catalog, opened at first use; raises :class:`TableError`."""
    key = _catalog_key(address)
    with _lock:
        kept = _catalogs.get(key)
        if kept is not None and kept[1] == _identity(kept[0]):
            return kept[0]
        if kept is not None:
            kept[0].close()
        try:
            found = load_catalog(address.catalog, **dict(address.properties))
        except Exception as problem:
            # Any library may raise here; the error is reported.
            raise failed("cannot open the catalog", address, problem) from None
        found.properties.setdefault(_IO, DURABLE)
        _catalogs[key] = (found, _identity(found))
    return found


def _identity(catalog: Catalog) -> object:
    """The identity of a catalog's file, to tell it from another one in its place; None without a file.

    An open file keeps its inode number, so no other file can have it.
    """
    match = _SQLITE.fullmatch(catalog.properties.get("uri", ""))
    if match is None:
        return None
    try:
        found = Path(match[1]).stat()
    except OSError:
        return "gone"
    return found.st_dev, found.st_ino


def _catalog_key(address: Address) -> Address:
    return type(address)(address.catalog, (), address.properties)


def forget(address: Address) -> None:
    """Open the catalog again next time."""
    with _lock:
        _catalogs.pop(_catalog_key(address), None)


def load(address: Address) -> Table | None:
    """The table as it is now; None when it does not exist. Raises :class:`TableError`."""
    catalog = catalog_of(address)
    try:
        return catalog.load_table(address.table)
    except (NoSuchTableError, NoSuchNamespaceError):
        return None
    except Exception as problem:
        # Any library may raise here; the error is reported.
        forget(address)
        raise failed("cannot open the table", address, problem) from None


def location_of(address: Address) -> str | None:
    """Where the newest metadata of a table is, if the catalog says so without reading it; else None."""
    catalog = catalog_of(address)
    engine = getattr(catalog, "engine", None)  # of a catalog in SQL
    if engine is None:
        return None
    from pyiceberg.catalog.sql import IcebergTables
    from sqlalchemy import select
    from sqlalchemy.exc import SQLAlchemyError
    from sqlalchemy.orm import Session

    namespace, name = ".".join(address.table[:-1]), address.table[-1]
    found = select(IcebergTables.metadata_location).where(
        IcebergTables.catalog_name == catalog.name,
        IcebergTables.table_namespace == namespace,
        IcebergTables.table_name == name,
    )
    try:
        with Session(engine) as session:
            return session.scalar(found)
    except SQLAlchemyError:
        return None  # the table is loaded, and says what is wrong


def create(address: Address, schema: pa.Schema, partition_by: Sequence[str] = ()) -> None:
    """Create a table without rows; nothing if another writer creates it at this moment.

    Creates its namespace as well. Raises :class:`TableError`.
    """
    catalog = catalog_of(address)
    try:
        with contextlib.suppress(NamespaceAlreadyExistsError):
            catalog.create_namespace(address.namespace)
        if not partition_by:
            catalog.create_table(address.table, schema, properties=_OF_NEW_TABLES)
        else:
            making = catalog.create_table_transaction(
                address.table, schema, properties=_OF_NEW_TABLES
            )
            with making as transaction, transaction.update_spec() as spec:
                for name in partition_by:
                    spec.add_identity(name)
    except (TableAlreadyExistsError, CommitFailedException):
        pass  # another writer was faster
    except Exception as problem:
        # Any library may raise here; the error is reported.
        raise failed("cannot make the table", address, problem) from None


def failed(doing: str, address: Address, problem: object) -> TableError:
    """The error of a failed action in one line, without the values of properties."""
    known = dict(address.properties)
    opened = _catalogs.get(_catalog_key(address))
    if opened is not None:
        known |= {name: str(value) for name, value in opened[0].properties.items()}
    said = " ".join(str(problem).split()) or type(problem).__name__
    return TableError(f"{doing} {address}: {without_secrets(said, known)}")


def without_secrets(said: str, properties: Mapping[str, str]) -> str:
    """The text with ``***`` in place of the values of properties that may be secret."""
    for value in sorted(_secrets(properties), key=len, reverse=True):
        said = said.replace(value, "***")
    return said


def without_secret_ones(properties: Mapping[str, str]) -> dict[str, str]:
    """The properties that hold no secret."""
    return {name: text for name, text in properties.items() if not any(_secrets({name: text}))}


def _secrets(properties: Mapping[str, str]) -> Iterable[str]:
    for name, value in properties.items():
        for found in re.findall(r"//([^/@\s]+)@", value):
            yield found
            yield found.partition(":")[2] or found
        secret = _SECRET.fullmatch(name.lower()) is not None
        if value and (secret or not (_TOLD.fullmatch(name.lower()) or len(value) <= _SHORT)):
            yield value
            if secret:  # "id:secret", the credential of REST catalogs
                yield from (part for part in value.split(":") if len(part) >= _SHORT)


def storage_of(table: Table) -> FileIO:
    """The access to the table's files, without that to the catalog; for executors."""
    properties = table.io.properties.items()
    kept = {name: value for name, value in properties if not _CATALOGS_OWN.fullmatch(name.lower())}
    return type(table.io)(kept)


def data_folder(table: Table, address: Address) -> DataFolder:
    """The folder of the table's data files; raises :class:`TableError`."""
    uri = table.properties.get("write.data.path") or f"{table.location().rstrip('/')}/data"
    if not isinstance(table.io, PyArrowFileIO):
        raise TableError(
            f"the catalog of {address} reaches files with {type(table.io).__name__}; set its"
            f" property {_IO} to one that inherits pyiceberg's PyArrowFileIO"
        )
    try:
        scheme, host, path = PyArrowFileIO.parse_location(uri, table.io.properties)
        files = None if scheme == "file" else table.io.fs_by_scheme(scheme, host)
    except Exception as problem:
        # Any library may raise here; the error is reported.
        raise failed("cannot reach the files of", address, problem) from None
    return DataFolder(uri.rstrip("/"), files, path)
