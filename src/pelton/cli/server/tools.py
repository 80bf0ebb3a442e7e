"""``pelton server passwd`` and ``pelton server mappings``: tools that need no server."""

from __future__ import annotations

import secrets
import string
import sys
from typing import TYPE_CHECKING

import click

from pelton.cli.output import print_json, print_json_line
from pelton.cli.prompts import may_ask
from pelton.cli.session import Session, command
from pelton.cli.values import Whole
from pelton.core.base.quoting import shown

if TYPE_CHECKING:
    from pelton.engine.base.transforms import Transform

SHORTEST = 10
LONGEST = 72
"""bcrypt looks at no more bytes than these."""
_GENERATED = 22
_INSTALL = "hashes need the package bcrypt: pip install bcrypt"


@click.command()
@click.option("-p", "--pass", "given", envvar="PASSWORD", default="", help="The password.")
@click.option(
    "-c",
    "--cost",
    type=Whole(4, 31),
    default=11,
    show_default=True,
    help="Cost of bcrypt: each step doubles the time of a login.",
)
@click.option("-g", "--generate", is_flag=True, help="Make a password up.")
@command
@click.pass_obj
def passwd(session: Session, given: str, cost: int, generate: bool) -> None:
    """Print the bcrypt hash of a password, for the server's configuration.

    Without --pass and --generate the password is asked for twice, or is the line on standard input.
    """
    if given and generate:
        raise click.UsageError("--pass and --generate exclude each other")
    password = random_password() if generate else given or _asked()
    hashed = bcrypt_hash(password, cost)
    if session.as_json:
        print_json({**({"password": password} if generate else {}), "hash": hashed})
    elif generate:
        print(f"Generated password: {password}")
        print(f"       bcrypt hash: {hashed}")
    else:
        print(hashed)


def random_password(length: int = _GENERATED) -> str:
    """Letters and digits from the system's source of randomness."""
    letters = string.ascii_letters + string.digits
    return "".join(secrets.choice(letters) for _ in range(length))


def bcrypt_hash(password: str, cost: int) -> str:
    """The hash; ClickException for a password that is too short, too long, or can't be typed."""
    raw = password.encode("utf-8", "surrogateescape")
    if len(password) < SHORTEST:
        raise click.ClickException(f"a password has at least {SHORTEST} characters")
    if len(raw) > LONGEST or b"\0" in raw:
        raise click.ClickException(f"a password has at most {LONGEST} bytes, and no NUL")
    try:
        import bcrypt
    except ImportError:
        raise click.ClickException(_INSTALL) from None
    return bcrypt.hashpw(raw, bcrypt.gensalt(cost, prefix=b"2a")).decode()


def _asked() -> str:
    if may_ask():
        found: str = click.prompt(
            "Enter password", hide_input=True, confirmation_prompt="Re-enter password", err=True
        )
        return found
    line = sys.stdin.readline()
    if not line:
        raise click.UsageError(
            "there is no password: give --pass, --generate or a line on standard input"
        )
    return line.rstrip("\r\n")


@click.command()
@click.argument("source", required=False)
@click.argument("destination", required=False)
@click.argument("subjects", nargs=-1, metavar="[SUBJECT]...")
@command
@click.pass_obj
def mappings(
    session: Session, source: str | None, destination: str | None, subjects: tuple[str, ...]
) -> int:
    """Show the result of a mapping from SOURCE to DESTINATION for each SUBJECT.

    Destinations have wildcards of the source ($1, {{wildcard(1)}}) and functions of them
    ({{partition(3,1)}}, {{split(1,-)}} ...), as in stream transforms and account mappings. Without
    SUBJECT, subjects are asked for, or read from standard input, one on each line. Nothing is changed
    on a server. Ends with 1 if a subject does not match.
    """
    transform = _transform(source, destination)
    if subjects:
        done = [_show(session, transform, each) for each in subjects]
        return 0 if all(done) else 1
    if not may_ask():
        done = [_show(session, transform, line.strip()) for line in sys.stdin if line.strip()]
        return 0 if all(done) else 1
    click.echo(
        "Enter subjects to test; an empty one ends. Nothing is changed on a server.", err=True
    )
    while subject := click.prompt("Subject", default="", show_default=False, err=True):
        _show(session, transform, subject)
    return 0


def _transform(source: str | None, destination: str | None) -> Transform:
    from pelton.engine.base.transforms import TransformError, parse

    if not may_ask() and (source is None or destination is None):
        raise click.UsageError("Missing argument 'SOURCE' or 'DESTINATION'")
    if source is None:
        source = str(click.prompt("Source subject pattern", err=True))
    if destination is None:
        destination = str(click.prompt("Destination subject pattern", err=True))
    try:
        return parse(source, destination, secrets.randbelow)
    except TransformError as error:
        raise click.UsageError(f'"{source}" to "{destination}": {error}') from None


def _show(session: Session, transform: Transform, subject: str) -> bool:
    """Print the mapped subject; whether the source matches."""
    found = transform.apply(subject)
    if session.as_json:
        print_json_line({"subject": subject, "mapped": found})
    elif found is None:
        click.echo(shown(f"pelton: {subject} does not match the source"), err=True)
    else:
        print(shown(found))
    return found is not None
