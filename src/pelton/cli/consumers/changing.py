"""``pelton consumer add``, ``edit``, ``copy``, ``pause``, ``resume``, ``unpin`` and ``reset``."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from msgspec.structs import replace

from pelton.api.streams import SERVERS_OWN
from pelton.cli.changes import change_all, config_option, edited_config, matching, of_file
from pelton.cli.consumers.basics import show
from pelton.cli.consumers.fields import (
    changes_anything,
    configured,
    moment_of,
    new_consumer,
    read_config,
    with_options,
)
from pelton.cli.inputs import read_input
from pelton.cli.output import as_data, duration, moment, print_json
from pelton.cli.prompts import Asked, ask, command_line, confirm, may_ask
from pelton.cli.session import Session, command
from pelton.cli.values import Whole, Word

if TYPE_CHECKING:
    from pelton.client.base.models import ConsumerConfig, ConsumerPause

_FORCE = click.option("-f", "--force", is_flag=True, help="Do not ask.")
_ACCEPTED = click.option("-f", "--force", is_flag=True, help="Accepted for scripts.")


class _StreamOfFile(Asked):
    """The stream; a file of --config may name it, too, as the output of ``consumer info`` does."""

    def process_value(self, ctx: click.Context, value: Any) -> Any:
        """The value; if it is missing, the stream of the file, or the user's choice."""
        file = ctx.params.get("file")
        if self.value_is_missing(value) and file is not None:
            from pelton.apply.single import stream_in

            place = str(file)
            value = of_file(read_input(file), place, lambda text: stream_in(text, place)) or value
        return super().process_value(ctx, value)


@click.command()
@click.argument("stream", cls=_StreamOfFile)
@click.argument("name", required=False)
@config_option
@click.option("--validate", is_flag=True, help="Only check the configuration.")
@click.option(
    "--output", type=click.Path(dir_okay=False, path_type=Path), help="Only write it to this file."
)
@click.option("--defaults", is_flag=True, help="Ask nothing.")
@click.option("--ephemeral", is_flag=True, help="Remove it when it is unused.")
@configured
@command
@click.pass_obj
def add(
    session: Session,
    /,
    stream: str,
    name: str | None,
    file: Path | None,
    validate: bool,
    output: Path | None,
    defaults: bool,
    ephemeral: bool,
    **given: Any,
) -> None:
    """Create the consumer NAME of STREAM. At a terminal, ask for missing values."""
    base = _config_of(file, session) if file else None
    asked: list[tuple[str, object]] = []
    if base is not None:
        name = name or base.durable_name or base.name or None
    if name is None and may_ask() and not (defaults or file):
        name = click.prompt("Name of the consumer", err=True)
        asked = _ask(given)
    if name is None and not ephemeral:
        raise click.UsageError("Missing argument 'NAME'.")
    now_ns = time.time_ns()
    wanted = new_consumer(given, now_ns) if base is None else with_options(base, given, now_ns)
    wanted = replace(wanted, name=name or "", durable_name="" if ephemeral else name or "")
    if output is not None:
        import json

        output.write_text(json.dumps(as_data(wanted), indent=2) + "\n")
        return
    if validate:
        if session.as_json:
            print_json(as_data(wanted))
        else:
            print("the configuration can be read")
        return
    with session.connect() as client:
        show(session, session.jetstream(client).create_consumer(stream, wanted, action="create"))
    if asked:
        words = ("pelton", "consumer", "add", stream, wanted.name)
        click.echo(f"without questions: {command_line(words, asked)}", err=True)


def _config_of(file: Path, session: Session) -> ConsumerConfig:
    """The configuration in a file, which may also be of 2020 where the tool is."""
    if session.of_2020:
        from pelton.cli.early.nats import consumer_config

        return consumer_config(read_input(file), str(file))
    return read_config(read_input(file), str(file))


def _ask(given: dict[str, Any]) -> list[tuple[str, object]]:
    """Ask for values that the options do not give, into ``given``; returns the options with the same meaning."""
    if given["target"] is None and not given["pull"]:
        given["target"] = (
            ask("Push to this subject, empty to wait for pulls", "--target", "") or None
        )
    if given["deliver"] is None:
        given["deliver"] = ask("Where to begin", "--deliver", "all")
    if given["ack"] is None:
        kinds = Word(["explicit", "all", "none"])
        usual = "none" if given["target"] else "explicit"
        given["ack"] = ask("What must be acknowledged", "--ack", usual, kinds)
    if not given["filters"]:
        text = ask("Only these subjects, empty for all", "--filter", "")
        given["filters"] = tuple(text.replace(",", " ").split())
    names = ("target", "deliver", "ack", "description")
    said = [("--" + name, given[name]) for name in names if given[name] is not None]
    return said + [("--filter", subject) for subject in given["filters"]]


@click.command()
@click.argument("stream", cls=Asked)
@click.argument("names", nargs=-1, metavar="NAME...")
@config_option
@_FORCE
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
    stream: str,
    names: tuple[str, ...],
    file: Path | None,
    force: bool,
    interactive: bool,
    dry_run: bool,
    **given: Any,
) -> int:
    """Change the consumers NAME... of STREAM; names may have the wildcards * and ?.

    Fields that are not given stay. All changes are shown before the first one is made.
    """
    from pelton.apply.defaults import settled_consumer
    from pelton.apply.planning import Change, differences

    if not names:
        raise click.UsageError("Missing argument 'NAME...'.")
    from_file = _config_of(file, session) if file else None
    if not (from_file or interactive or changes_anything(given)):
        raise click.UsageError("give an option to change, --config or --interactive")
    wanted: dict[str, ConsumerConfig] = {}
    changes = []
    with session.connect() as client:
        js = session.jetstream(client)
        found = matching(names, js.consumer_names(stream), "consumer")
        if len(found) > 1 and (from_file or interactive):
            raise click.UsageError("--config and --interactive change one consumer")
        for name in found:
            now = js.consumer_info(stream, name).config
            assert now is not None  # consumer_info always has it
            base = now
            if from_file is not None:
                base = replace(from_file, name=now.name, durable_name=now.durable_name)
            if interactive:
                base = edited_config(base, read_config)
            config = with_options(base, given, time.time_ns())
            own = {k: v for k, v in now.metadata.items() if k.startswith(SERVERS_OWN)}
            wanted[name] = replace(config, metadata={**own, **config.metadata})
            both = (settled_consumer(each, None) for each in (now, wanted[name]))
            unlike = differences(*both)
            changes.append(Change("update" if unlike else "keep", stream, name, differences=unlike))
        return change_all(
            session,
            changes,
            lambda change: js.update_consumer(stream, wanted[change.consumer]),
            what="consumer",
            force=force,
            dry_run=dry_run,
        )


@click.command()
@click.argument("stream")
@click.argument("source")
@click.argument("destination")
@click.option("--ephemeral", is_flag=True, help="Remove it when it is unused.")
@configured
@command
@click.pass_obj
def copy(
    session: Session, /, stream: str, source: str, destination: str, ephemeral: bool, **given: Any
) -> None:
    """Create the consumer DESTINATION of STREAM with the configuration of SOURCE and the options."""
    with session.connect() as client:
        js = session.jetstream(client)
        now = js.consumer_info(stream, source).config
        assert now is not None  # consumer_info always has it
        own = {k: v for k, v in now.metadata.items() if not k.startswith(SERVERS_OWN)}
        durable = "" if ephemeral else destination
        base = replace(now, name=destination, durable_name=durable, metadata=own)
        wanted = with_options(base, given, time.time_ns())
        show(session, js.create_consumer(stream, wanted, action="create"))


@click.command()
@click.argument("stream", cls=Asked)
@click.argument("name", cls=Asked, of="stream")
@click.argument("until")
@_ACCEPTED
@command
@click.pass_obj
def pause(session: Session, stream: str, name: str, until: str, force: bool) -> None:
    """Let the consumer NAME of STREAM deliver nothing until a time, or for a duration such as 1h."""
    with session.connect() as client:
        end_ns = moment_of(until, time.time_ns())
        _tell_pause(session, name, session.jetstream(client).pause_consumer(stream, name, end_ns))


@click.command()
@click.argument("stream", cls=Asked)
@click.argument("name", cls=Asked, of="stream")
@_ACCEPTED
@command
@click.pass_obj
def resume(session: Session, stream: str, name: str, force: bool) -> None:
    """Let the consumer NAME of STREAM deliver again."""
    with session.connect() as client:
        _tell_pause(session, name, session.jetstream(client).resume_consumer(stream, name))


def _tell_pause(session: Session, name: str, state: ConsumerPause) -> None:
    if session.as_json:
        until = moment(state.pause_until_ns)
        print_json({"paused": state.paused, "pause_until": until or None})
    elif state.paused:
        left = duration(state.pause_remaining_ns // 10**9 * 10**9)
        print(f"consumer {name} is paused until {moment(state.pause_until_ns)} ({left})")
    else:
        print(f"consumer {name} delivers")


@click.command()
@click.argument("stream", cls=Asked)
@click.argument("name", cls=Asked, of="stream")
@click.argument("group")
@_FORCE
@command
@click.pass_obj
def unpin(session: Session, stream: str, name: str, group: str, force: bool) -> None:
    """Take the pin of a priority GROUP from the client that has it."""
    if not force:
        confirm(f"Really unpin the client of group {group} of consumer {name}?")
    with session.connect() as client:
        session.jetstream(client).unpin_consumer(stream, name, group)
    if session.as_json:
        print_json({"stream": stream, "consumer": name, "unpinned": group})
    else:
        print(f"unpinned the client of group {group} of consumer {name}")


@click.command()
@click.argument("stream", cls=Asked)
@click.argument("name", cls=Asked, of="stream")
@click.option("--sequence", type=Whole(1), default=None, help="Deliver from this sequence on.")
@_FORCE
@command
@click.pass_obj
def reset(session: Session, stream: str, name: str, sequence: int | None, force: bool) -> None:
    """Let the consumer NAME of STREAM deliver again from the ack floor, or from --sequence on."""
    if not force:
        place = f"sequence {sequence}" if sequence else "its ack floor"
        confirm(f"Really reset consumer {name} of stream {stream} to {place}?")
    with session.connect() as client:
        show(session, session.jetstream(client).reset_consumer(stream, name, sequence or 0))
