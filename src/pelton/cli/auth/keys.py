"""``pelton auth nkey``: make keys, sign and verify files, encrypt and decrypt them."""

from __future__ import annotations

import base64
import secrets
import sys
from pathlib import Path

import click

from pelton.cli.auth.store import write_private
from pelton.cli.inputs import read_input, read_text_input
from pelton.cli.output import print_json
from pelton.cli.session import Session, command
from pelton.cli.values import Word
from pelton.nkeys import (
    ACCOUNT,
    CLUSTER,
    CURVE,
    OPERATOR,
    SERVER,
    USER,
    CurvePair,
    KeyPair,
    NkeyError,
    decode,
    decode_seed,
    read_seed,
    verify,
)

_KINDS = {
    "user": USER,
    "account": ACCOUNT,
    "server": SERVER,
    "cluster": CLUSTER,
    "operator": OPERATOR,
    "curve": CURVE,
    "x25519": CURVE,
}
_FILE = click.Path(exists=True, dir_okay=False, path_type=Path)
_OUTPUT = click.option(
    "--output", type=click.Path(dir_okay=False, path_type=Path), help="Write to a new file."
)
_B64 = click.option("--b64/--no-b64", default=True, help="In base64.")
_SEED_BYTES = 32


@click.command()
@click.argument("kind", type=Word(list(_KINDS)))
@click.option("--public", is_flag=True, help="Also print the public key.")
@click.option(
    "--entropy", type=click.Path(exists=True, path_type=Path), help="Take random bytes from here."
)
@_OUTPUT
@command
@click.pass_obj
def gen(
    session: Session, kind: str, public: bool, entropy: Path | None, output: Path | None
) -> None:
    """Make a key of a KIND, and print its seed, which is a secret."""
    pair = _made(_KINDS[kind], _random(entropy))
    if output is not None:
        write_private(output, pair.seed + "\n", force=False)
    if session.as_json:
        print_json({"public": pair.public, **({} if output is not None else {"seed": pair.seed})})
        return
    if output is None:
        print(pair.seed)
    if public:
        print(pair.public)


def _made(kind: int, raw: bytes) -> KeyPair | CurvePair:
    try:
        return CurvePair(raw) if kind == CURVE else KeyPair(kind, raw)
    except ImportError as error:
        raise click.ClickException(str(error)) from None


def _random(source: Path | None) -> bytes:
    if source is None:
        return secrets.token_bytes(_SEED_BYTES)
    with source.open("rb") as file:
        raw = file.read(_SEED_BYTES)
    if len(raw) < _SEED_BYTES:
        raise click.ClickException(f"{source} has fewer than {_SEED_BYTES} bytes")
    return raw


def _pair(path: Path) -> KeyPair | CurvePair:
    """The key in a file with a seed, or with credentials."""
    try:
        kind, raw = decode_seed(
            read_seed(read_text_input(path, encoding="utf-8", errors="replace"))
        )
    except NkeyError as error:
        raise click.ClickException(f"{path}: {error}") from None
    return _made(kind, raw)


def _signing(path: Path) -> KeyPair:
    pair = _pair(path)
    if not isinstance(pair, KeyPair):
        raise click.ClickException(f"{path}: a curve key encrypts, it does not sign")
    return pair


def _curve(path: Path) -> CurvePair:
    pair = _pair(path)
    if not isinstance(pair, CurvePair):
        raise click.ClickException(f"{path}: only a curve key encrypts")
    return pair


@click.command()
@click.argument("key", type=_FILE)
@command
@click.pass_obj
def show(session: Session, key: Path) -> None:
    """Print the public key of the seed in the file KEY."""
    public = _pair(key).public
    if session.as_json:
        print_json({"public": public})
    else:
        print(public)


@click.command()
@click.argument("file", type=_FILE)
@click.argument("key", type=_FILE)
@command
@click.pass_obj
def sign(session: Session, file: Path, key: Path) -> None:
    """Print the signature of FILE with the seed in the file KEY."""
    pair = _signing(key)
    signature = base64.urlsafe_b64encode(pair.sign(read_input(file))).decode().rstrip("=")
    if session.as_json:
        print_json({"signature": signature, "public": pair.public})
    else:
        print(signature)


@click.command("verify")
@click.argument("file", type=_FILE)
@click.argument("signature", type=_FILE)
@click.argument("key", type=_FILE)
@command
@click.pass_obj
def verify_(session: Session, file: Path, signature: Path, key: Path) -> None:
    """Check the signature of FILE in the file SIGNATURE with the key in the file KEY.

    KEY holds a seed or a public key. Ends with 1 if the signature is not right.
    """
    text = read_text_input(key, encoding="utf-8", errors="replace").strip()
    try:
        decode(text)
        public = text
    except NkeyError:
        public = _signing(key).public
    given = read_text_input(signature, encoding="utf-8", errors="replace").strip()
    try:
        raw = base64.b64decode(given + "=" * (-len(given) % 4), b"-_", validate=True)
    except ValueError:
        raise click.ClickException(f"{signature} has no signature in base64") from None
    if not verify(public, read_input(file), raw):
        raise click.ClickException(
            f"{signature} is not the signature of {file} with the key {public}"
        )
    if session.as_json:
        print_json({"verified": True, "public": public})
    else:
        print(f"verified: signed with {public}")


@click.command()
@click.argument("file", type=_FILE)
@click.argument("key", type=_FILE)
@click.argument("recipient")
@_OUTPUT
@_B64
@command
@click.pass_obj
def seal(
    session: Session, file: Path, key: Path, recipient: str, output: Path | None, b64: bool
) -> None:
    """Encrypt FILE with the curve seed in the file KEY for the public curve key RECIPIENT."""
    try:
        sealed = _curve(key).seal(read_input(file), recipient, secrets.token_bytes(24))
    except NkeyError as error:
        raise click.ClickException(f"{recipient}: {error}") from None
    _write(base64.b64encode(sealed) if b64 else sealed, output)


@click.command()
@click.argument("file", type=_FILE)
@click.argument("key", type=_FILE)
@click.argument("sender")
@_OUTPUT
@_B64
@command
@click.pass_obj
def unseal(
    session: Session, file: Path, key: Path, sender: str, output: Path | None, b64: bool
) -> None:
    """Decrypt FILE with the curve seed in the file KEY, sealed by the public curve key SENDER."""
    raw = read_input(file)
    try:
        data = base64.b64decode(raw, validate=False) if b64 else raw
        opened = _curve(key).open(data, sender)
    except NkeyError as error:
        raise click.ClickException(f"{file}: {error}") from None
    except ValueError:
        raise click.ClickException(f"{file} is not base64; see --no-b64") from None
    _write(opened, output)


def _write(data: bytes, output: Path | None) -> None:
    if output is None:
        sys.stdout.flush()
        sys.stdout.buffer.write(data)
        if data and sys.stdout.isatty():
            sys.stdout.buffer.write(b"\n")
        sys.stdout.buffer.flush()
        return
    import os

    try:
        descriptor = os.open(output, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except OSError as error:
        raise click.ClickException(f"cannot write {output}: {error.strerror}") from None
    with open(descriptor, "wb") as file:
        file.write(data)
