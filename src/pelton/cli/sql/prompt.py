"""The prompt of ``pelton sql``: statements end in a semicolon, and may take several lines."""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING

from pelton.cli.failures import DONE
from pelton.core.base.quoting import shown

if TYPE_CHECKING:
    from pelton.sql import Database

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

    from pelton.cli.sql.failures import names_of

    words = [*names_of(database), "select", "from", "where", "group by all", "order by", "limit"]
    session: PromptSession[str] = PromptSession(completer=WordCompleter(words, ignore_case=True))
    text = ""
    while True:
        try:
            text += session.prompt("   ...> " if text else "pelton> ") + "\n"
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


def answer(database: Database, line: str, form: str) -> None:
    """Print the result of a statement or a dot command; a failure is one line on stderr."""
    import duckdb
    import pyarrow

    from pelton.cli.sql.failures import hinted, names_of, show_place
    from pelton.cli.sql.formats import output_for
    from pelton.cli.sql.interrupting import interruptible
    from pelton.errors import PeltonError

    if line.startswith("."):
        known = {".tables": lambda: "\n".join(map(shown, names_of(database)))}
        print(known.get(line, lambda: _HELP)())
        return
    began = time.monotonic()
    try:
        count = 0
        with interruptible(database):
            reader = database.rows(line)
            output = output_for(form, reader.schema, sys.stdout.buffer)
            for batch in reader:
                output.write(batch)
                count += batch.num_rows
            output.end()
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return
    except (duckdb.Error, pyarrow.ArrowException, PeltonError, OSError, ValueError) as error:
        text = hinted(str(database.failure(error)), database)
        reason = " ".join(show_place(text).split())
        print(f"pelton: {shown(reason)}", file=sys.stderr)
        return
    read = database.scans.rows_read
    took = time.monotonic() - began
    rows, messages = (
        f"{n:,} {what}{'s' * (n != 1)}" for n, what in ((count, "row"), (read, "message"))
    )
    print(f"{rows} from {messages}, {took:.2f} s", file=sys.stderr)
