"""nkeys, JWTs and .creds files: what CONNECT says, and both shells against servers that check it."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Any

import pytest

from pelton import Options, connect, nkeys, sync
from pelton.client.protocol.info import CredentialsError, ServerInfo, connect_line, signed_fields
from pelton.errors import AuthenticationError
from tests.client.test_live_secured import echoes
from tests.server.auth import signed
from tests.server.auth.live import KINDS, configured
from tests.server.auth.signed import ACCOUNT, STRANGER, USER, account_jwt, user_jwt

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.peers import ServerProcess

NONCE = "abcdefghijklmno"
JWT = "eyJ0.eyJ1.c2ln"


def check(fields: dict[str, str], public: str = USER.public) -> None:
    raw = nkeys.read_signature(fields["sig"])
    assert raw is not None
    assert nkeys.verify(public, NONCE.encode(), raw)


def test_what_connect_says(tmp_path: Path) -> None:
    seed_file, creds = tmp_path / "seed", tmp_path / "user.creds"
    seed_file.write_text(f"# mine\n{USER.seed}\n")
    creds.write_text(nkeys.format_credentials(JWT, USER.seed))
    for nkey in (USER.seed, str(seed_file)):
        fields = signed_fields(Options(nkey=nkey), NONCE)
        assert fields["nkey"] == USER.public
        check(fields)
    for options in (Options(creds=str(creds)), Options(nkey=USER.seed, jwt=JWT)):
        fields = signed_fields(options, NONCE)
        assert fields["jwt"] == JWT
        check(fields)
        assert signed_fields(options, "") == {"jwt": JWT}
    assert signed_fields(Options(jwt=JWT), NONCE) == {"jwt": JWT}
    options = Options(creds=str(creds))
    line = connect_line(options, options.servers[0], ServerInfo(nonce=NONCE), False)
    check(json.loads(line[8:]))


def test_a_renewed_file_is_used_by_the_next_connect(tmp_path: Path) -> None:
    creds = tmp_path / "user.creds"
    options = Options(creds=str(creds))
    for user in (USER, STRANGER):
        creds.write_text(nkeys.format_credentials(JWT, user.seed))
        check(signed_fields(options, NONCE), user.public)


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"creds": "/missing.creds"}, "cannot read /missing.creds"),
        ({"nkey": "/missing.nk"}, "cannot read /missing.nk"),
        ({"nkey": ACCOUNT.seed[:-1] + "A"}, "neither the seed of a user"),
        ({"nkey": ACCOUNT.seed}, "neither the seed of a user"),
        ({"nkey": USER.seed[:-3]}, "neither the seed of a user"),
    ],
)
def test_credentials_that_are_none(fields: dict[str, Any], words: str) -> None:
    with pytest.raises(CredentialsError, match=words) as caught:
        signed_fields(Options(**fields), NONCE)
    assert "/missing" in str(caught.value) or fields["nkey"] not in str(caught.value)


def test_a_file_without_a_seed(tmp_path: Path) -> None:
    path = tmp_path / "x"
    path.write_text("nothing")
    for fields in ({"creds": str(path)}, {"nkey": str(path)}):
        with pytest.raises(CredentialsError):
            signed_fields(Options(**fields), NONCE)  # type: ignore[arg-type]  # texts only
    with pytest.raises(CredentialsError, match="no nonce"):
        signed_fields(Options(nkey=USER.seed), "")


def test_options_do_not_show_secrets() -> None:
    assert USER.seed not in repr(Options(nkey=USER.seed, jwt=JWT))
    assert JWT not in repr(Options(nkey=USER.seed, jwt=JWT))
    with pytest.raises(ValueError, match="not both"):
        Options(creds="a", nkey="b")


@echoes
@pytest.mark.parametrize("kind", KINDS)
def test_an_nkey_user(kind: str, echo: Any, tmp_path: Path) -> None:
    text = f"authorization {{ users: [{{nkey: {USER.public}}}] }}"
    with configured(kind, tmp_path, text) as server:
        assert echo(server.url, nkey=USER.seed) == b"x"
        with pytest.raises(AuthenticationError, match="Authorization Violation"):
            echo(server.url, nkey=STRANGER.seed)
        with pytest.raises(AuthenticationError, match="cannot read"):
            echo(server.url, nkey=str(tmp_path / "missing"))


@echoes
@pytest.mark.parametrize("kind", KINDS)
def test_a_creds_file(kind: str, echo: Any, tmp_path: Path) -> None:
    good, bad = tmp_path / "good.creds", tmp_path / "bad.creds"
    good.write_text(nkeys.format_credentials(user_jwt(), USER.seed))
    bad.write_text(nkeys.format_credentials(user_jwt(), STRANGER.seed))
    with configured(kind, tmp_path, signed.config(account_jwt())) as server:
        assert echo(server.url, creds=str(good)) == b"x"
        assert echo(server.url, jwt=user_jwt(), nkey=USER.seed) == b"x"
        assert echo(server.url, jwt=user_jwt(bearer_token=True)) == b"x"
        with pytest.raises(AuthenticationError, match="Authorization Violation"):
            echo(server.url, creds=str(bad))


@pytest.mark.parametrize("kind", KINDS)
def test_the_command_line(kind: str, tmp_path: Path) -> None:
    from click.testing import CliRunner

    from pelton.cli.tree import pelton

    creds = tmp_path / "u.creds"
    creds.write_text(nkeys.format_credentials(user_jwt(), USER.seed))
    with configured(kind, tmp_path, signed.config(account_jwt())) as server:
        run = CliRunner().invoke(
            pelton, ["-s", server.url, "--creds", str(creds), "pub", "a", "text"]
        )
        assert run.exit_code == 0, run.output
        run = CliRunner().invoke(pelton, ["-s", server.url, "pub", "a", "text"])
        assert run.exit_code != 0
        assert "Authorization Violation" in str(run.exception)


FAILURES = 5


def failing_for_a_while() -> Callable[[], str]:
    """A credential that its function cannot get a few times after the first connection."""
    calls = 0

    def token() -> str:
        nonlocal calls
        calls += 1
        if 1 < calls <= FAILURES:
            raise OSError("the vault is sealed")
        return "t0ken"

    return token


def test_a_client_tries_again_until_it_gets_its_credentials(
    shell: str, server: ServerProcess
) -> None:
    token = failing_for_a_while()
    if shell == "blocking":
        with sync.connect(server.url, token=token, reconnect_wait=0.01) as client:
            client.reconnect()
            client.flush()
        return

    async def run() -> None:
        async with connect(server.url, token=token, reconnect_wait=0.01) as client:
            await client.reconnect()
            await client.flush()

    asyncio.run(run())


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"token": {}.popitem}, "the credentials failed: KeyError: "),
        ({"token": lambda: None}, "must return text, not NoneType"),
        (
            {"authenticator": lambda nonce: None},
            "return a dict of the fields of CONNECT, not NoneType",
        ),
    ],
)
def test_what_is_wrong_with_a_function_for_credentials(
    server: ServerProcess, given: dict[str, Any], words: str
) -> None:
    with pytest.raises(AuthenticationError, match=words) as failed:
        sync.connect(server.url, **given)
    assert not failed.value.by_server
