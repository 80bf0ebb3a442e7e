"""The prompt of ``penstock sql``: statements end in a semicolon, and may take several lines."""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING

from penstock.cli.failures import DONE
from penstock.core.base.quoting import shown

if TYPE_CHECKING:
    from penstock.sql import Database

_HELP = """\
A statement ends in a semicolon. Other lines:
  .tables   streams, buckets and object stores
  .help     this text
  .quit     end (also Ctrl-D)
A stream has the columns seq, ts, subject, headers, data, text, size, ts_ns."""


def prompt(database: Database, form: str) -> int:
    """Read statements at the terminal and print their answers, until the user ends it."""
    from prompt_toolkit import PromptSession
    from prompt_toolkit.completion import WordCompleter

    words = [*names_of(database), "select", "from", "where", "group by all", "order by", "limit"]
    session: PromptSession[str] = PromptSession(completer=WordCompleter(words, ignore_case=True))
    text = ""
    while True:
        try:
            text += session.prompt("   ...> " if text else "penstock> ") + "\n"
        except KeyboardInterrupt:
            text = ""
            continue
        except EOFError:
            return DONE
        line = text.strip()
        if line in (".quit", ".exit"):
            return DONE
        if line.endswith(";") or line.startswith("."):
            answer(database, line, form)
            text = ""
        elif not line:
            text = ""


def names_of(database: Database) -> list[str]:
    """The tables that a query can name."""
    found = []
    for name in database.source.streams():
        for prefix, schema in (("KV_", "kv"), ("OBJ_", "object")):
            if name.startswith(prefix):
                found.append(f"{schema}.{name.removeprefix(prefix)}")
                break
        else:
            found.append(name)
    return [*found, "streams", "consumers", "advisories"]


def answer(database: Database, line: str, form: str) -> None:
    """Print what a statement or a dot command gives; a failure is one line on stderr."""
    import duckdb
    import pyarrow

    from penstock.cli.sql.failures import show_place
    from penstock.cli.sql.formats import output_for
    from penstock.errors import PenstockError

    if line.startswith("."):
        known = {".tables": lambda: "\n".join(map(shown, names_of(database)))}
        print(known.get(line, lambda: _HELP)())
        return
    began = time.monotonic()
    try:
        reader = database.rows(line)
        output = output_for(form, reader.schema, sys.stdout.buffer)
        count = 0
        for batch in reader:
            output.write(batch)
            count += batch.num_rows
        output.end()
    except (duckdb.Error, pyarrow.ArrowException, PenstockError, OSError, ValueError) as error:
        reason = " ".join(show_place(str(database.failure(error))).split())
        print(f"penstock: {shown(reason)}", file=sys.stderr)
        return
    read = database.scans.rows_read
    took = time.monotonic() - began
    print(f"{count:,} rows from {read:,} messages, {took:.2f} s", file=sys.stderr)
