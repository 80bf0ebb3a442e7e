"""``pelton schema``: JSON schemas of the messages of JetStream and of services, and checks against them."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from pelton.cli.inputs import read_input
from pelton.cli.output import print_json, print_names, print_table
from pelton.cli.session import Session, command
from pelton.cli.values import PATTERN_ERRORS
from pelton.core.base.quoting import shown

if TYPE_CHECKING:
    import msgspec

    from pelton.api.schemas import Schema

_ADVISORY = "io.nats.jetstream.advisory.v1."
_METRIC = "io.nats.jetstream.metric.v1."


def known() -> dict[str, tuple[type[msgspec.Struct], bool]]:
    """The messages by name: their type, and whether other fields are wrong."""
    from pelton.api.calls import TYPE_PREFIX, EmptyRequest, PubAck, PullRequest
    from pelton.api.consumers import ConsumerConfig
    from pelton.api.streams import StreamConfig
    from pelton.engine.account import advisories
    from pelton.engine.calls.api_calls import CALLS

    found: dict[str, tuple[type[msgspec.Struct], bool]] = {
        f"{TYPE_PREFIX}stream_configuration": (StreamConfig, True),
        f"{TYPE_PREFIX}consumer_configuration": (ConsumerConfig, True),
        f"{TYPE_PREFIX}consumer_getnext_request": (PullRequest, True),
        f"{TYPE_PREFIX}pub_ack_response": (PubAck, False),
    }
    for call in CALLS:
        found[TYPE_PREFIX + call.type] = (call.response, False)
        if call.request is not EmptyRequest and call.type.endswith("_response"):
            request = call.type.removesuffix("_response") + "_request"
            found[TYPE_PREFIX + request] = (call.request, True)
    events: dict[str, type[msgspec.Struct]] = {
        "stream_action": advisories.StreamAction,
        "consumer_action": advisories.ConsumerAction,
        "max_deliver": advisories.MaxDeliver,
        "nak": advisories.Nak,
        "terminated": advisories.Terminated,
        "api_audit": advisories.ApiAudit,
        "snapshot_create": advisories.SnapshotCreate,
        "snapshot_complete": advisories.SnapshotComplete,
        "restore_create": advisories.RestoreCreate,
        "restore_complete": advisories.RestoreComplete,
        "stream_batch_abandoned": advisories.BatchAbandoned,
        "consumer_pause": advisories.Pause,
        "consumer_group_pinned": advisories.Pinned,
        "consumer_group_unpinned": advisories.Unpinned,
    }
    found |= {_ADVISORY + name: (kind, False) for name, kind in events.items()}
    found[f"{_METRIC}consumer_ack"] = (advisories.Acknowledged, False)
    return dict(sorted(found.items()))


def schema(name: str) -> Schema:
    """The schema of a message; ClickException with the nearest name if there is none."""
    from pelton.api.schemas import schema_of

    names = known()
    if name not in names:
        from difflib import get_close_matches

        hits = [each for each in names if each.rpartition(".")[2] == name]
        if len(hits) == 1:
            name = hits[0]
        else:
            near = get_close_matches(
                name, [*names, *(each.rpartition(".")[2] for each in names)], 1
            )
            hint = f"; did you mean {near[0]!r}?" if near else "; see pelton schema search"
            raise click.ClickException(f"there is no schema {name}{hint}")
    kind, closed = names[name]
    return schema_of(kind, name, closed=closed)


@click.command()
@click.argument("name", metavar="SCHEMA")
@click.option("--yaml", "as_yaml", is_flag=True, help="Print YAML.")
@command
@click.pass_obj
def info(session: Session, name: str, as_yaml: bool) -> None:
    """Print the JSON schema with the name SCHEMA, or with that end of a name."""
    found = schema(name)
    if not as_yaml:
        print_json(found)
        return
    try:
        import yaml
    except ImportError:
        raise click.ClickException("YAML needs the package pyyaml: pip install pyyaml") from None
    print(yaml.safe_dump(found, sort_keys=False), end="")


@click.command()
@click.argument("pattern", default=".")
@command
@click.pass_obj
def search(session: Session, pattern: str) -> None:
    """List the schemas with the regular expression PATTERN in their names."""
    try:
        wanted = re.compile(pattern, re.IGNORECASE)
    except PATTERN_ERRORS as error:
        raise click.UsageError(f'"{pattern}" is not a regular expression: {error}') from None
    found = [name for name in known() if wanted.search(name)]
    if not found:
        raise click.ClickException(f'no schema matches "{pattern}"')
    if session.form in ("csv", "md"):
        print_table(("Schema",), [(name,) for name in found])
    else:
        print_names(session, found)


@click.command()
@click.argument("name", metavar="SCHEMA")
@click.argument(
    "file", type=click.Path(exists=True, dir_okay=False, allow_dash=True, path_type=Path)
)
@command
@click.pass_obj
def validate(session: Session, name: str, file: Path) -> int:
    """Check the JSON in FILE (- for standard input) against a SCHEMA. Ends with 1 if it does not fit."""
    wanted = schema(name)
    dash = str(file) == "-"
    raw = sys.stdin.buffer.read() if dash else read_input(file)
    return _checked(session, wanted, _json(raw, "standard input" if dash else str(file)), str(file))


def _json(raw: bytes, place: str) -> Any:
    try:
        return json.loads(raw)
    except json.JSONDecodeError as error:
        raise click.ClickException(f"{place}:{error.lineno}:{error.colno}: {error.msg}") from None
    except (ValueError, RecursionError) as error:
        raise click.ClickException(f"{place}: {error}") from None


def _checked(session: Session, wanted: Schema, found: Any, what: str) -> int:
    from pelton.api.schemas import problems

    title = wanted["title"]
    bad = problems(found, wanted)
    if session.as_json:
        print_json({"schema": title, "valid": not bad, "problems": bad})
    elif bad:
        print(shown(f"{what} is no {title}:"))
        for each in bad:
            print(shown(f"  {each}"))
    else:
        print(shown(f"{what} is a valid {title}"))
    return 1 if bad else 0


@click.command("request")
@click.argument("subject")
@click.argument("body", default="{}")
@click.option("--schema", "name", default="", help="The schema that the answer shall have.")
@click.option("--show", is_flag=True, help="Print the answer.")
@command
@click.pass_obj
def request(session: Session, subject: str, body: str, name: str, show: bool) -> int:
    """Send BODY to SUBJECT, and check the answer against the schema of its type."""
    with session.connect() as client:
        answer = client.request(subject, body.encode(), timeout=session.timeout / 1e9)
    found = _json(answer.data, "the answer")
    if show:
        print_json(found)
    kind = str(found.get("type") or "") if isinstance(found, dict) else ""
    if not kind and not name:
        raise click.ClickException("the answer says no type; give --schema")
    if name and kind and kind != (wanted := schema(name))["title"]:
        raise click.ClickException(f"the answer is a {kind}, no {wanted['title']}")
    return _checked(session, schema(name or kind), found, "the answer")
