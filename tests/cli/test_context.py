"""``pelton context`` and ``--context``: files that the ``nats`` command reads, too."""

from __future__ import annotations

import base64
import json
import stat
from typing import TYPE_CHECKING

import pytest

from pelton.cli.session import Session
from pelton.client.base.addresses import TlsOptions, parse_servers
from pelton.client.protocol.contexts import options_of, read_context
from pelton.nkeys import KeyPair
from tests.copies.local import LocalServer

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from tests.cli.conftest import Ran
    from tests.peers import ServerProcess

    Run = Callable[..., Ran]


@pytest.fixture
def folder(cli: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of the contexts; no server is given by the environment."""
    for name in ("NATS_URL", "NATS_CONTEXT"):
        monkeypatch.delenv(name, raising=False)
    return tmp_path / "config" / "nats"


def test_a_context_from_birth_to_death(cli: Run, folder: Path, tmp_path: Path) -> None:
    made = cli("context", "add", "hub", "--server", "nats://h:1", "--user", "anna", "--password",
               "secret", "--description", "the hub", "--js-domain", "HUB", "--select")  # fmt: skip
    assert made.status == 0
    assert "Context hub\n" in made.out
    assert "secret" not in made.out
    file = folder / "context" / "hub.json"
    assert json.loads(file.read_text()) == {
        "url": "nats://h:1",
        "user": "anna",
        "password": "secret",
        "jetstream_domain": "HUB",
        "description": "the hub",
    }
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert stat.S_IMODE(file.parent.stat().st_mode) == 0o700
    assert (folder / "context.txt").read_text() == "hub"
    # what is not given stays, also fields that only others know; options may stand before
    file.write_text(json.dumps({**json.loads(file.read_text()), "color_scheme": "red"}))
    assert cli("-s", "nats://h:2", "context", "save", "hub").status == 0
    found = cli("context", "info", "--json").json
    assert (found["url"], found["user"], found["color_scheme"]) == ("nats://h:2", "anna", "red")
    assert cli("context", "copy", "hub", "leaf", "--description", "a leaf").status == 0
    assert cli("context", "copy", "hub", "leaf").status == 1
    assert cli("context", "ls", "--names").out == "hub\nleaf\n"
    listed = cli("context", "ls").out
    assert "hub*" in listed
    assert "leaf*" not in listed
    listing = cli("ctx", "ls", "--json").json
    assert [each["selected"] for each in listing] == [True, False]
    assert listing[0]["color_scheme"] == "red"
    assert listing[0]["user"] == "anna"
    assert cli("context", "select", "leaf").out == "selected context leaf\n"
    assert cli("context", "-").out == "selected context hub\n"
    assert cli("context", "previous", "--json").json == {"selected": "leaf"}
    refused = cli("context", "rm", "leaf", "-f")
    assert (refused.status, "select another one first" in refused.err) == (1, True)
    assert cli("context", "rm", "hub", stdin=b"n\n").status == 130
    assert cli("context", "rm", "hub", stdin=b"y\n").status == 0
    assert cli("context", "unselect").out == "selected no context\n"
    assert cli("context", "rm", "leaf", "-f", "--json").json == {"removed": "leaf"}
    assert list((folder / "context").iterdir()) == []


def test_passwords_in_urls_are_not_shown(cli: Run, folder: Path) -> None:
    url = "nats://anna:s3cret@h:1,nats://t0ken@i:2"
    shown = "nats://anna:*****@h:1,nats://*****@i:2"
    proxy = ("--socks-proxy", "socks5://p:s3cret@proxy:1080")
    for command in (
        ("context", "add", "hub", "-s", url, *proxy),
        ("context", "info", "hub"),
        ("context", "copy", "hub", "other"),
        ("context", "ls"),
        ("context", "ls", "--json"),
    ):
        ran = cli(*command)
        assert ran.status == 0, ran.err
        assert shown in ran.out
        assert not any(secret in ran.out + ran.err for secret in ("s3cret", "t0ken"))
    refused = cli("context", "add", "bad", "-s", "nats://anna:s3cret@h:port")
    assert refused.status != 0
    assert "bad port" in refused.err
    assert "s3cret" not in refused.out + refused.err


def test_files_are_named_so_that_they_are_found_from_everywhere(
    cli: Run, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    cli("context", "add", "a", "--creds", "anna.creds", "--tlsca", "~/ca.pem")
    fields = json.loads((folder / "context" / "a.json").read_text())
    assert fields["creds"] == str(tmp_path / "anna.creds")
    assert fields["ca"] == "~/ca.pem"
    checked = cli("context", "validate")
    assert checked.status == 1
    assert f"creds: cannot read {tmp_path}/anna.creds" in checked.out
    (tmp_path / "anna.creds").write_text("x")
    cli("context", "add", "b", "--creds", "anna.creds")
    assert cli("context", "validate", "b", "--json").json == [{"name": "b", "problems": []}]
    assert cli("context", "validate").status == 1
    assert cli("context", "info", "a").status == 1


def test_commands_use_the_context(cli: Run, folder: Path, peer: ServerProcess, unique: str) -> None:
    cli("context", "add", "here", "--server", peer.url)
    cli("context", "add", "nowhere", "--server", "nats://127.0.0.1:1")
    assert cli("--context", "here", "stream", "add", unique).status == 0
    assert cli("--context", "nowhere", "stream", "info", unique).status == 1
    cli("context", "select", "here")
    assert cli("stream", "info", unique).status == 0
    # what the command line says goes over the context
    assert cli("--context", "nowhere", "-s", peer.url, "stream", "info", unique).status == 0
    cli("context", "select", "nowhere")
    assert cli("stream", "info", unique).status == 1
    assert cli("-s", peer.url, "stream", "info", unique).status == 0
    assert cli("context", "info", "here", "--connect").out.endswith("Connection: works\n")
    broken = cli("context", "validate", "--connect", "--json")
    assert broken.status == 1
    problems = {each["name"]: each["problems"] for each in broken.json}
    assert problems["here"] == []
    assert len(problems["nowhere"]) == 1
    assert "cannot connect" in problems["nowhere"][0]
    assert cli("--context", "here", "stream", "rm", unique, "-f").status == 0


@pytest.fixture
def guarded(tmp_path: Path) -> Iterator[LocalServer]:
    """A server that lets anna in."""
    config = tmp_path / "users.conf"
    config.write_text("authorization { users: [ { user: anna, password: secret } ] }\n")
    with LocalServer(options=["-c", str(config)]) as local:
        yield local


def test_credentials_of_a_context_let_in(cli: Run, folder: Path, guarded: LocalServer) -> None:
    cli("context", "add", "a", "-s", guarded.url, "--user", "anna", "--password", "secret")
    assert cli("--context", "a", "pub", "x", "y").status == 0
    assert cli("--context", "a", "--token", "t", "pub", "x", "y").status == 1
    cli("context", "select", "a")
    assert cli("pub", "x", "y").status == 0
    # a server of the selected context gets its credentials, however it is named
    assert cli("-s", guarded.url, "pub", "x", "y").status == 0
    assert cli("-s", guarded.url.removeprefix("nats://"), "pub", "x", "y").status == 0
    assert cli("-s", guarded.url, "--no-context", "pub", "x", "y").status == 1
    # another server gets none, neither alone nor beside one of the context
    other = guarded.url.replace("127.0.0.1", "localhost")
    assert cli("-s", other, "pub", "x", "y").status == 1
    assert cli("-s", f"{other},{guarded.url}", "pub", "x", "y").status == 1
    assert cli("-s", other, "--context", "a", "pub", "x", "y").status == 0
    cli("context", "add", "b", "-s", guarded.url.replace("://", "://anna:secret@"), "--select")
    assert cli("-s", guarded.url, "pub", "x", "y").status == 0
    assert cli("-s", guarded.url.replace("://", "://anna:wrong@"), "pub", "x", "y").status == 1


def test_credentials_may_be_in_the_context_itself(cli: Run, folder: Path, tmp_path: Path) -> None:
    seed = cli("auth", "nkey", "gen", "user").out.split()[0]
    file = tmp_path / "user.nk"
    file.write_text(seed + "\n")
    config = tmp_path / "nkeys.conf"
    public = KeyPair.from_seed(seed).public
    config.write_text(f"authorization {{ users: [ {{ nkey: {public} }} ] }}\n")
    with LocalServer(options=["-c", str(config)]) as local:
        assert cli("context", "add", "f", "-s", local.url, "--nkey", file).status == 0
        assert cli("context", "copy", "f", "e", "--embed").status == 0
        made = cli("context", "add", "g", "-s", local.url, "--nkey", file, "--embed")
        assert "in the context itself" in made.out
        file.unlink()
        for name in ("e", "g"):
            assert cli("--context", name, "pub", "x", "y").status == 0
            assert cli("context", "validate", name, "--connect").status == 0
        assert cli("--context", "f", "pub", "x", "y").status == 1
    fields = json.loads((folder / "context" / "e.json").read_text())
    assert base64.b64decode(fields["nkey"].removeprefix("data:;base64,")).decode() == f"{seed}\n"
    missing = cli("context", "copy", "f", "h", "--embed")
    assert (missing.status, missing.err.count("\n")) == (1, 1)
    assert cli("context", "ls", "--names").out.split() == ["e", "f", "g"]
    (folder / "context" / "e.json").write_text(json.dumps(fields | {"nkey": "data:;base64,?"}))
    assert "not Base64" in cli("--context", "e", "pub", "x", "y").err


def test_credentials_in_a_context_are_those_of_a_file() -> None:
    text = "-----BEGIN NATS USER JWT-----\nx\n"
    data = "data:;base64," + base64.b64encode(text.encode()).decode()
    fields = json.dumps({"creds": data, "user_jwt": data})
    found = options_of(fields, "x", "/nowhere")
    assert (found["creds"], found["jwt"]) == (text, text)


def test_which_options_win(folder: Path) -> None:
    (folder / "context").mkdir(parents=True)
    fields = {"url": "nats://h:1", "user": "u", "password": "p", "ca": "/ca", "tls_first": True}
    (folder / "context" / "c.json").write_text(json.dumps(fields))
    (folder / "context.txt").write_text("c")
    empty = dict.fromkeys(Session.__dataclass_fields__, "")
    plain = {**empty, "no_context": False, "tlsfirst": False, "timeout": 10**9, "as_json": False}

    def of(**given: object) -> dict[str, object]:
        found = Session(**{**plain, **given})._given()  # type: ignore[arg-type]  # any option
        return {name: value for name, value in found.items() if value}

    tls = TlsOptions(ca_file="/ca", first=True)
    servers = parse_servers("nats://h:1")
    selected = {"servers": servers, "user": "u", "password": "p", "tls": tls}
    assert of() == of(context="c") == selected
    assert of(token="t") == {"servers": servers, "token": "t", "tls": tls}
    assert (
        of(server="o:2") == of(server="o:2", no_context=True) == {"servers": parse_servers("o:2")}
    )
    assert of(server="o:2", context="c") == {**selected, "servers": parse_servers("o:2")}
    assert of(tlsca="/x") == {**selected, "tls": TlsOptions(ca_file="/x", first=True)}
    assert of(no_context=True) == {"servers": parse_servers("nats://127.0.0.1:4222")}


def test_an_editor_changes_a_context(
    cli: Run, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cli("context", "add", "a", "-s", "nats://h:1")
    editor = tmp_path / "editor"
    for script, status, url in (
        ("sed -i s/h:1/h:2/", 0, "nats://h:2"),
        ("true", 0, "nats://h:2"),
        ("sed -i s/{/[/", 1, "nats://h:2"),
        ("sed -i s/h:2/h:no/", 1, "nats://h:2"),
    ):
        editor.write_text(f'#!/bin/sh\n{script} "$1"\n')
        editor.chmod(0o700)
        monkeypatch.setenv("VISUAL", str(editor))
        assert cli("context", "edit", "a").status == status, script
        assert read_context("a")["servers"] == parse_servers(url)


def test_a_shell_completes_names_of_contexts(cli: Run, folder: Path) -> None:
    from click.shell_completion import ShellComplete

    from pelton.cli.tree import pelton

    for name in ("hub", "leaf", "hurry"):
        cli("context", "add", name)
    found = ShellComplete(pelton, {}, "pelton", "X").get_completions(["--context"], "hu")
    assert [each.value for each in found] == ["hub", "hurry"]


def test_mistakes_are_told_in_one_line(cli: Run, folder: Path) -> None:
    (folder / "context").mkdir(parents=True)
    (folder / "context" / "bad.json").write_text("[]")
    (folder / "context.txt").write_text("gone")
    for status, words, says in (
        (1, "context info none", "there is no context 'none'"),
        (1, "context select none", "there is no context 'none'"),
        (1, "context info bad", "not a JSON object"),
        (1, "context add ../x", "cannot be the name"),
        (1, "context add x --tlskey k", "key without cert"),
        (1, "context previous", "no other context"),
        (1, "context rm none -f", "there is no context 'none'"),
        (1, "--context none pub a b", "there is no context 'none'"),
        (1, "--context bad pub a b", "not a JSON object"),
        (1, "pub a b", "there is no context 'gone'"),
        (2, "--context bad --no-context pub a b", "exclude each other"),
    ):
        ran = cli(*words.split())
        assert (ran.status, ran.out) == (status, ""), words
        assert says in ran.err
        assert ran.err.count("\n") == 1
    assert not (folder / "context" / "x.json").exists()
    listed = {each["name"]: each for each in cli("context", "ls", "--json").json}
    assert "not a JSON object" in listed["bad"]["error"]
