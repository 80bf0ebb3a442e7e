"""``pelton kv dump`` and ``load``: the keys and values of a bucket as JSON.

One object on each line, or with ``--json`` one list of them::

    {"key": "color", "data": "blue", "revision": 7, "created": "2026-11-23T12:00:00Z"}

A value that is no text is in ``data_base64``. ``load`` takes both forms, and needs a key and a value.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import click

from pelton.cli.inputs import read_input
from pelton.cli.output import moment, number, payload, payload_of, print_json, print_json_line
from pelton.cli.session import Session, command

_FILE = click.Path(dir_okay=False, allow_dash=True, path_type=Path)


@click.command()
@click.argument("bucket")
@click.argument("filters", nargs=-1, metavar="[FILTER]...")
@command
@click.pass_obj
def dump(session: Session, bucket: str, filters: tuple[str, ...]) -> None:
    """Print the keys and values of BUCKET as JSON, one line for each.

    All of them are as of one revision of the bucket. A FILTER such as "eu.>" selects keys.
    """
    with session.connect() as client:
        found = session.jetstream(client).key_value(bucket).snapshot(*filters)
    rows = [
        {"key": key, **payload(found[key].data)}
        | {"revision": found[key].revision, "created": moment(found[key].created_ns)}
        for key in sorted(found)
    ]
    if session.as_json:
        print_json(rows)
        return
    for row in rows:
        print_json_line(row)


@click.command()
@click.argument("bucket")
@click.argument("file", type=_FILE, default="-")
@click.option("--keep", is_flag=True, help="Leave keys that have a value as they are.")
@command
@click.pass_obj
def load(session: Session, bucket: str, file: Path, keep: bool) -> None:
    """Store the keys and values in FILE (or standard input) in BUCKET.

    FILE is what `pelton kv dump` prints. It is read and checked as a whole before anything is
    stored.
    """
    from pelton.errors import KeyExistsError

    try:
        text = sys.stdin.buffer.read() if str(file) == "-" else read_input(file)
    except OSError as error:
        raise click.UsageError(f"cannot read {file}: {error.strerror}") from None
    values = read_values(text, str(file))
    stored = kept = 0
    with session.connect() as client:
        opened = session.jetstream(client).key_value(bucket)
        for key in values:
            opened._keyspace.write_subject(key)  # checks it
        for key, value in values.items():
            try:
                opened.create(key, value) if keep else opened.put(key, value)
            except KeyExistsError:
                kept += 1
            else:
                stored += 1
    if session.as_json:
        print_json({"bucket": bucket, "stored": stored, "kept": kept})
        return
    left = f", left {number(kept)} as they are" if keep else ""
    print(f"stored {number(stored)} keys in bucket {bucket}{left}")


def read_values(text: bytes, name: str) -> dict[str, bytes]:
    """The values by key in the text of a dump; UsageError says where it is wrong."""
    try:
        if text.lstrip().startswith(b"["):
            rows = list(enumerate(json.loads(text), 1))
        else:
            rows = [
                (n, json.loads(line)) for n, line in enumerate(text.split(b"\n"), 1) if line.strip()
            ]
    except (ValueError, RecursionError) as error:
        raise click.UsageError(f"{name} is not JSON: {error}") from None
    found: dict[str, bytes] = {}
    for n, row in rows:
        try:
            key = row.get("key") if isinstance(row, dict) else None
            if not isinstance(key, str):
                raise ValueError('expected an object with the text "key"')
            if key in found:
                raise ValueError(f"key {key} occurs twice")
            found[key] = payload_of(row)
        except ValueError as error:
            raise click.UsageError(f"{name}, object or line {n}: {error}") from None
    return found
