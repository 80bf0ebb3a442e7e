"""``pelton sql``: questions in SQL over streams, buckets and object stores, live or in a store folder."""

from __future__ import annotations

import contextlib
import os
import re
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from pelton.cli.failures import DONE, USAGE
from pelton.cli.output import plural
from pelton.cli.session import Session, command
from pelton.cli.sql.failures import QueryError, hinted
from pelton.cli.sql.interrupting import interruptible
from pelton.cli.values import DURATION, Whole, Word
from pelton.errors import PeltonError, PublishFailedError, not_installed

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import BinaryIO

    from pelton.cli.sql.formats import Output
    from pelton.sql import Database
    from pelton.sql.documents import Structure
    from pelton.vault import Vault

    Take = Callable[[Any], None]

_FORMATS = ("table", "json", "jsonl", "csv", "md", "parquet", "arrow")
_BINARY = ("parquet", "arrow")
_FIELD = re.compile(r"\{([^{}]+)\}")


@click.command()
@click.argument("query", required=False)
@click.option("-f", "--format", "form", type=Word(_FORMATS), help="Default: table.")
@click.option("-o", "--output", type=click.Path(dir_okay=False), help="Write into this new file.")
@click.option("--to", "subject", help='Publish each row as JSON; "{column}" stands for its value.')
@click.option("--follow", is_flag=True, help="Ask again about new messages, until Ctrl-C.")
@click.option("--every", type=DURATION, default="1s", show_default=True, help="With --follow.")
@click.option("-n", "--count", default=0, type=Whole(0), help="End after so many rows.")
@click.option(
    "--json-columns",
    "documents",
    multiple=True,
    metavar='STREAM or "STREAM: NAME TYPE, ..."',
    help="JSON payloads become columns; types from a sample, or as given. Repeatable.",
)
@click.option(
    "--decode",
    "decodes",
    multiple=True,
    metavar="STREAM:FORM[:MESSAGE]",
    help="The column text is the payload as JSON; FORM: msgpack, cbor, protobuf. Repeatable.",
)
@click.option(
    "--descriptor",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="Descriptor set of the Protobuf messages.",
)
@click.option(
    "--allow-files",
    is_flag=True,
    help="Let queries read and write files, attach databases and load extensions.",
)
@command
@click.pass_obj
def sql(session: Session, /, query: str | None, **asked: Any) -> int:
    """Answer QUERY, in DuckDB's SQL; without one, statements from stdin or a prompt.

    A stream is a table with the columns seq, ts, subject, headers, data, text, size, ts_ns; "NAME:PATTERN"
    has only messages of matching subjects. kv.BUCKET, kv_history.BUCKET, object.STORE, streams, consumers,
    advisories are tables, too.

    \b
    pelton sql "select subject, count(*) from ORDERS group by all order by 2 desc"
    pelton sql --json-columns ORDERS "select sum(price) from ORDERS where ts > now() - interval 1 hour"
    pelton sql --store ./data "select * from ORDERS where subject = 'orders.new' and seq > 1000"
    """
    try:
        with interruptible():
            import duckdb
            import pyarrow
    except ImportError as problem:
        raise click.ClickException(str(not_installed(problem, "sql"))) from None
    form = asked["form"] or ("json" if session.as_json else "table")
    _check(session, asked, form, query)
    with interruptible():
        database = _database(session, asked)
    rows = _Rows(asked["subject"] or "")
    with database, rows.counted():
        try:
            if query is None and sys.stdin.isatty():
                from pelton.cli.sql.prompt import prompt

                return prompt(database, form)
            statements = [query] if query is not None else _statements(sys.stdin.read())
            with _target(session, asked, form, rows) as take, interruptible(database):
                for statement in statements:
                    _answer(database, statement, asked, take)
        except duckdb.Error as error:
            raise _told(database.failure(error), database) from error
        except pyarrow.ArrowException as error:  # of a result that was being read
            raise _told(database.failure(error), database) from error
    return DONE


def _told(error: Exception, database: Database | None = None) -> Exception:
    """The error for the user: that of the source as it is, that of DuckDB as a text."""
    import duckdb
    import pyarrow

    if not isinstance(error, duckdb.Error | pyarrow.ArrowException):
        return error
    wrong = duckdb.ParserException | duckdb.BinderException | duckdb.CatalogException
    text = str(error) if database is None else hinted(str(error), database)
    return QueryError(text, USAGE if isinstance(error, wrong) else 1)


def _check(session: Session, asked: dict[str, Any], form: str, query: str | None) -> None:
    if asked["follow"] and query is None:
        raise click.UsageError("--follow needs a query")
    if asked["follow"] and session.store:
        raise click.UsageError("--follow needs a server: nothing comes to a store folder")
    if asked["follow"] and form in ("json", *_BINARY):
        raise click.UsageError(f"--follow has no end, and {form} needs one; take jsonl")
    if asked["subject"] and (asked["output"] or asked["form"]):
        raise click.UsageError("--to publishes rows; it goes without --format and --output")
    if form in _BINARY and not asked["output"] and sys.stdout.isatty():
        raise click.UsageError(f"{form} is not for a terminal; give --output")


def _statements(text: str) -> list[str]:
    import duckdb

    try:
        return [each.query for each in duckdb.extract_statements(text)]
    except duckdb.Error as error:
        raise _told(error) from error


# -- sources and targets ----------------------------------------------------------------------------


def _database(session: Session, asked: dict[str, Any]) -> Database:
    from pelton.sql.database import Database
    from pelton.sql.folders import FolderSource
    from pelton.sql.live import LiveSource

    class _Folder(FolderSource):
        """The folder, and its consumers as the server of ``--store`` tells them."""

        def __init__(self, session: Session, keys: Vault | None) -> None:
            super().__init__(session.store, keys, session.store_account)
            self._session = session

        def consumer_rows(self) -> list[dict[str, object]]:
            if len({(each.domain, each.account) for each in self.store.streams}) != 1:
                return super().consumer_rows()
            rows = LiveSource(self._session.connect).consumer_rows()
            return [row | {"num_waiting": None} for row in rows]

    columns = dict(map(_typed, asked["documents"]))
    decoders = dict(_decoder(each, asked["descriptor"]) for each in asked["decodes"])
    source: FolderSource | LiveSource
    if session.store and _is_store(session.store):
        from pelton.cli.store.opening import more_files, vault

        more_files()
        source = _Folder(session, vault())
    else:
        source = LiveSource(session.connect, None if session.store else session.domain or None)
    return Database(
        source, json_columns=columns, decoders=decoders, allow_files=asked["allow_files"]
    )


def _decoder(given: str, descriptor: Path | None) -> tuple[str, Any]:
    from pelton.cli.messages.decoding import DECODERS

    stream, _, rest = given.partition(":")
    form, _, message = rest.partition(":")
    if not stream or form not in DECODERS:
        known = ", ".join(DECODERS)
        raise click.UsageError(f'--decode "{given}" is not STREAM:FORM, with one of {known}')
    options = {"descriptor": descriptor, "message": message or None}
    return stream, DECODERS[form](options)


def _is_store(path: str) -> bool:
    from pelton.cli.store.opening import is_store

    return is_store(path)


def _typed(given: str) -> tuple[str, Structure | None]:
    from pelton.sql.documents import stated

    name, colon, types = given.partition(":")
    if not name.strip():
        raise click.UsageError(f'--json-columns "{given}" names no stream')
    return name.strip(), stated(types) if colon else None


@contextlib.contextmanager
def _target(session: Session, asked: dict[str, Any], form: str, rows: _Rows) -> Iterator[Take]:
    """Where the rows of a result go: takes readers of batches."""
    if asked["subject"]:
        with (
            session.connect(live=True) as client,
            session.jetstream(client).publisher() as publisher,
        ):
            yield lambda reader: rows.publish(publisher, reader)
        return
    file: BinaryIO = sys.stdout.buffer
    if asked["output"]:
        file = open(asked["output"], "xb")  # noqa: SIM115  # closed below, removed on a failure
    go_on = form == "csv" and asked["follow"]  # the names of the columns are the first line alone
    begun: list[Output] = []
    try:
        yield lambda reader: _print(reader, form, file, begun if go_on else [])
        file.flush()
    except BaseException:
        if asked["output"]:
            file.close()
            os.unlink(asked["output"])
        raise
    if asked["output"]:
        file.close()


def _print(reader: Any, form: str, file: BinaryIO, begun: list[Output]) -> None:
    """Print rows; behind others, if an output has begun."""
    from pelton.cli.sql.formats import output_for

    if not begun:
        begun.append(output_for(form, reader.schema, file))
    output = begun[0]
    for batch in reader:
        output.write(batch)
    output.end()


class _Rows:
    """The rows that ``--to`` publishes, each as JSON."""

    def __init__(self, subject: str) -> None:
        self._subject = subject
        self._wanted = _FIELD.findall(subject)
        self._published = 0
        self._failures: list[Any] = []

    @contextlib.contextmanager
    def counted(self) -> Iterator[None]:
        """Add to an error how many rows are in the stream: you must know before you repeat the query."""
        try:
            yield
        except (PeltonError, OSError, ValueError, click.ClickException) as error:
            count = self._published - len(self._failures)
            if not count:
                raise
            reason = error.message if isinstance(error, click.ClickException) else str(error)
            failed = click.ClickException(f"{reason}; {plural(count, 'row')} published before it")
            failed.exit_code = getattr(error, "exit_code", failed.exit_code)  # type: ignore[misc]  # a class variable of click
            raise failed from error

    def publish(self, publisher: Any, reader: Any) -> None:
        """Publish the rows of a result."""
        import msgspec

        from pelton.cli.sql.formats import objects_of

        missing = [name for name in self._wanted if name not in reader.schema.names]
        if missing:
            raise click.UsageError(f"--to names {missing[0]}, which is no column of the result")
        self._failures = publisher.failures
        try:
            for batch in reader:
                for row in objects_of(batch):
                    name = _FIELD.sub(lambda found, row=row: str(row[found[1]]), self._subject)  # type: ignore[misc]  # bound now, as it is meant
                    publisher.publish(name, msgspec.json.encode(row))
                    self._published += 1
        except Exception:
            with contextlib.suppress(PublishFailedError):  # the error counts those without an ack
                publisher.flush()
            raise


# -- answers ----------------------------------------------------------------------------------------


def _answer(database: Database, query: str, asked: dict[str, Any], take: Take) -> None:
    left = asked["count"] or None
    while True:
        reader = database.rows(query)
        if asked["follow"]:
            # all of a round before any of it: it says whether the round saw a message
            table = reader.read_all()
            seen, reader = database.scans.rows_read, table.to_reader()
        else:
            seen = 1
        if left is not None:
            reader, left = _first(reader, left)
        if seen:
            take(reader)
        if not asked["follow"] or left == 0:
            return
        if not database.followed():
            raise click.UsageError("--follow needs a query over a stream")
        database.go_on()
        time.sleep(asked["every"] / 1e9)


def _first(reader: Any, most: int) -> tuple[Any, int]:
    """The first rows of a result, and how many more are wanted."""
    import pyarrow

    batches = []
    for batch in reader:
        batches.append(batch.slice(0, most))
        most -= batches[-1].num_rows
        if not most:
            break
    return pyarrow.RecordBatchReader.from_batches(reader.schema, batches), most
