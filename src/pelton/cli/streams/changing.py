"""``pelton stream add``, ``edit``, ``copy`` and ``seal``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from msgspec.structs import replace

from pelton.api.streams import SERVERS_OWN
from pelton.cli.changes import change_all, config_option, edited_config, matching
from pelton.cli.inputs import read_input
from pelton.cli.output import as_data, print_json
from pelton.cli.prompts import Asked, ask, command_line, confirm, may_ask
from pelton.cli.session import Session, command
from pelton.cli.streams.basics import present_stream, show
from pelton.cli.streams.fields import changes_anything, configured, read_config, with_options
from pelton.cli.values import DURATION, LIFETIME, SIZE, SIZE_32, WHOLE, Whole, Word

if TYPE_CHECKING:
    from pelton.apply.planning import Change
    from pelton.client.base.models import StreamConfig

_QUESTIONS: list[tuple[str, str, object, Any]] = [
    ("storage", "Storage", "file", Word(["file", "memory"])),
    ("retention", "Retention", "limits", Word(["limits", "interest", "workqueue"])),
    ("discard", "Discard", "old", Word(["old", "new"])),
    ("max_msgs", "Limit of messages, -1 for none", -1, WHOLE),
    ("max_msgs_per_subject", "Limit of messages per subject, -1 for none", -1, WHOLE),
    ("max_bytes", "Limit of bytes, -1 for none", "-1", SIZE),
    ("max_age", "How long to keep messages, such as 30d, 0s for ever", "0s", LIFETIME),
    ("max_msg_size", "Limit of the size of a message, -1 for none", "-1", SIZE_32),
    ("dupe_window", "How long to remember message ids", "2m", DURATION),
    ("replicas", "Copies in a cluster", 1, Whole(1)),
]


@click.command()
@click.argument("name", required=False)
@config_option
@click.option("--validate", is_flag=True, help="Only check the configuration.")
@click.option(
    "--output", type=click.Path(dir_okay=False, path_type=Path), help="Only write it to this file."
)
@click.option("--defaults", is_flag=True, help="Ask nothing.")
@configured
@command
@click.pass_obj
def add(
    session: Session,
    /,
    name: str | None,
    file: Path | None,
    validate: bool,
    output: Path | None,
    defaults: bool,
    **given: Any,
) -> None:
    """Create the stream NAME. At a terminal, ask for missing values."""
    complete = name is not None and (given["subjects"] or given["mirror"] or given["sources"])
    asked: list[tuple[str, object]] = []
    if may_ask() and not (complete or defaults or file):
        name = name or click.prompt("Name of the stream", err=True)
        asked = _ask(given)
    base = read_config(read_input(file), str(file)) if file else _fresh()
    wanted = with_options(replace(base, name=name or base.name), given)
    if not wanted.name:
        raise click.UsageError("Missing argument 'NAME'.")
    if validate:
        _tell_valid(session, wanted)
        return
    if output is not None:
        output.write_text(_json(wanted))
        return
    with session.connect() as client:
        created = session.jetstream(client).create_stream(wanted)
        if session.of_2020 and not session.as_json:
            print(f"Stream {created.config.name} was created\n")
        show(session, created)
    if asked:
        words = ("pelton", "stream", "add", wanted.name)
        click.echo(f"without questions: {command_line(words, asked)}", err=True)


def _fresh() -> StreamConfig:
    """The defaults of ``add``; direct gets are allowed, as with the ``nats`` command."""
    from pelton.client.base.models import StreamConfig

    return StreamConfig(
        max_msgs=-1,
        max_bytes=-1,
        max_msgs_per_subject=-1,
        max_msg_size=-1,
        max_consumers=-1,
        num_replicas=1,
        allow_direct=True,
    )


def _config_of(text: bytes, place: str, session: Session, now: StreamConfig) -> StreamConfig:
    """The configuration in a text; as in 2020, fields that it does not have are those of ``now``."""
    if session.of_2020:
        from pelton.cli.early.nats import stream_config

        return stream_config(text, place, now)
    return read_config(text, place)


def _ask(given: dict[str, Any]) -> list[tuple[str, object]]:
    """Ask for values that the options do not give, into ``given``; returns the options with the same meaning."""
    said: list[tuple[str, object]] = []
    if not (given["subjects"] or given["mirror"] or given["sources"]):
        subjects = click.prompt("Subjects, with commas (--subjects)", err=True)
        given["subjects"] = (subjects,)
    for name, label, default, kind in _QUESTIONS:
        option = "--" + name.replace("_", "-")
        if given[name] is None:
            given[name] = ask(label, option, default, kind)
    for name, value in given.items():
        option = "--" + name.replace("_", "-")
        if isinstance(value, tuple):
            said += [("--" + name.rstrip("s") if name != "subjects" else option, v) for v in value]
        elif value is not None and value is not False and value != -1 and value != 0:
            span = name in ("max_age", "dupe_window", "subject_del_markers_ttl")
            said.append((option, _span(value) if span else value))
    return said


def _span(ns: int) -> str:
    from pelton.api.times import format_duration

    return format_duration(ns)


def _json(config: StreamConfig) -> str:
    import json

    return json.dumps(as_data(config), indent=2, ensure_ascii=False) + "\n"


def _tell_valid(session: Session, config: StreamConfig) -> None:
    """Say that a server would accept the configuration; ClickException with the reason if not."""
    from pelton.api import StreamConfig as WireConfig
    from pelton.api import encode
    from pelton.api.codec import decode_request
    from pelton.apply.defaults import settled_stream

    settled = settled_stream(decode_request(WireConfig, encode(config)))
    if session.as_json:
        print_json(as_data(settled))
    else:
        print(f"the configuration of stream {config.name} can be read")


@click.command()
@click.argument("names", nargs=-1, metavar="NAME...")
@config_option
@click.option("-f", "--force", is_flag=True, help="Do not ask.")
@click.option(
    "-i",
    "--interactive/--no-interactive",
    default=False,
    help="Change the configuration in $EDITOR.",
)
@click.option("--dry-run", is_flag=True, help="Only show the changes; exit status 1 if any.")
@configured
@command
@click.pass_obj
def edit(
    session: Session,
    /,
    names: tuple[str, ...],
    file: Path | None,
    force: bool,
    interactive: bool,
    dry_run: bool,
    **given: Any,
) -> int:
    """Change the configuration of the streams NAME...; names may have the wildcards * and ?.

    Fields that are not given stay. All streams are read and all changes are shown before the first
    one is made.
    """
    text = read_input(file) if file else None
    from_file = None if text is None else read_config(text, str(file))
    if not names and from_file is not None and from_file.name:
        names = (from_file.name,)
    if not names:
        raise click.UsageError("Missing argument 'NAME...'.")
    if not (from_file or interactive or changes_anything(given)):
        raise click.UsageError("give an option to change, --config or --interactive")
    with session.connect() as client:
        js = session.jetstream(client)
        found = matching(names, js.stream_names(), "stream")
        if len(found) > 1 and (from_file or interactive):
            raise click.UsageError("--config and --interactive change one stream")
        changes, configs = [], []
        for name in found:
            now = present_stream(session, js, name).config
            base = now
            if text is not None:
                base = replace(_config_of(text, str(file), session, now), name=name)
            if interactive:
                base = edited_config(base, read_config)
            changes.append(_change(name, now, with_options(base, given)))
            configs.append((now, changes[-1][1]))
        if session.of_2020 and not session.as_json:
            from pelton.cli.early.nats import edit_streams

            return edit_streams(js, configs, force=force, dry_run=dry_run)

        def apply(change: Change) -> Any:
            return js.update_stream(wanted[change.stream])

        wanted = {change.stream: config for change, config in changes}
        return change_all(
            session,
            [change for change, _ in changes],
            apply,
            what="stream",
            force=force,
            dry_run=dry_run,
        )


def _change(name: str, now: StreamConfig, wanted: StreamConfig) -> tuple[Change, StreamConfig]:
    """The change, and the configuration to send; metadata that the server adds is kept."""
    from pelton.apply.defaults import settled_stream
    from pelton.apply.planning import Change, differences

    if wanted.name != name:
        raise click.UsageError(f"a stream can't be renamed: {name} to {wanted.name}")
    given = {key: text for key, text in now.metadata.items() if key.startswith(SERVERS_OWN)}
    wanted = replace(wanted, metadata={**given, **wanted.metadata})
    found = differences(settled_stream(now), settled_stream(wanted))
    return Change("update" if found else "keep", name, differences=found), wanted


@click.command()
@click.argument("source")
@click.argument("destination")
@configured
@command
@click.pass_obj
def copy(session: Session, /, source: str, destination: str, **given: Any) -> None:
    """Create the stream DESTINATION with the configuration of SOURCE and the options; no messages.

    Give --subjects, because two streams cannot take the same subjects.
    """
    with session.connect() as client:
        js = session.jetstream(client)
        now = js.stream_info(source).config
        own = {k: v for k, v in now.metadata.items() if not k.startswith(SERVERS_OWN)}
        base = replace(now, name=destination, metadata=own)
        show(session, js.create_stream(with_options(base, given)))


@click.command()
@click.argument("name", cls=Asked)
@click.option("-f", "--force", is_flag=True, help="Do not ask.")
@command
@click.pass_obj
def seal(session: Session, name: str, force: bool) -> None:
    """Let nothing in the stream NAME change any more; this cannot be taken back."""
    if not force:
        confirm(f"Really seal stream {name}? It can never change again.")
    with session.connect() as client:
        js = session.jetstream(client)
        config = replace(js.stream_info(name).config, sealed=True)
        show(session, js.update_stream(config))
