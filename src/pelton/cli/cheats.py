"""``pelton cheat``: command lines to copy, by topic."""

from __future__ import annotations

import click

from pelton.cli.cheat_sheets import CHEATS, OTHER, topic_of
from pelton.cli.output import print_json, print_table
from pelton.cli.session import Session, command


@click.command()
@click.argument("topic", required=False)
@command
@click.pass_obj
def cheat(session: Session, topic: str | None) -> None:
    """Print command lines about TOPIC; without one, the topics."""
    if topic is None:
        if session.as_json:
            print_json(list(CHEATS))
            return
        rows = [(name, "; ".join(list(lines)[:1])) for name, lines in CHEATS.items()]
        print_table(("Topic", "Begins with"), rows)
        return
    found = CHEATS.get(topic_of(topic))
    if found is None:
        from difflib import get_close_matches

        near = get_close_matches(topic, [*CHEATS, *OTHER], 1)
        hint = f"; did you mean {near[0]!r}?" if near else "; see pelton cheat"
        raise click.UsageError(f"no cheat sheet about {topic!r}{hint}")
    if session.as_json:
        print_json({what: list(lines) for what, lines in found.items()})
        return
    print("\n\n".join("\n".join([f"# {what}", *lines]) for what, lines in found.items()))
