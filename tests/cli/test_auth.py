"""``pelton auth``: operators, accounts and users are made, and servers take them."""

from __future__ import annotations

import contextlib
import json
import stat
import time
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest

from pelton import sync
from pelton.errors import PeltonError
from pelton.nkeys import KeyPair, read_credentials, verify
from pelton.server.auth.claims import AccountClaims, OperatorClaims, UserClaims
from pelton.server.auth.jwt import decode
from tests.cli.terminal import Terminal
from tests.peers import available_servers
from tests.server.configured import configured

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from pelton.client.sync import Client
    from tests.cli.conftest import Ran

    Run = Callable[..., Ran]

PATIENCE_SECONDS = 60.0


@pytest.fixture
def run(cli: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    """The command line with an empty folder of keys, and an operator ACME with an account APP."""
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    return cli


def ok(ran: Ran) -> Ran:
    assert ran.status == 0, ran.err
    return ran


@pytest.fixture
def acme(run: Run) -> Run:
    ok(run("auth", "operator", "add", "ACME"))
    ok(run("auth", "account", "add", "APP", "--jetstream", "--defaults"))
    return run


class Served(NamedTuple):
    """A server that trusts ACME; `run` acts as its system user."""

    run: Run
    url: str
    folder: Path

    def connect(self, creds: str) -> Client:
        return sync.connect(self.url, creds=str(self.folder / creds), reconnect=False)

    def refuses(self, creds: str) -> bool:
        with contextlib.suppress(PeltonError):
            self.connect(creds).close()
            return False
        return True


@pytest.fixture(params=available_servers())
def served(request: pytest.FixtureRequest, acme: Run, tmp_path: Path) -> Iterator[Served]:
    ok(acme("auth", "user", "add", "root", "SYSTEM", "--credential", tmp_path / "root.creds"))
    ok(acme("auth", "user", "add", "anna", "APP", "--credential", tmp_path / "anna.creds"))
    config = ok(acme("auth", "operator", "config", "--resolver", str(tmp_path / "jwt"))).out
    text = f'listen: 127.0.0.1:@port\njetstream {{ store_dir: "{tmp_path}/store" }}\n{config}'
    with configured(request.param, text) as server:
        url = f"nats://127.0.0.1:{server.ports['port']}"

        def run(*words: object, **options: Any) -> Ran:
            return acme("-s", url, "--creds", tmp_path / "root.creds", *words, **options)

        yield Served(run, url, tmp_path)


def eventually(what: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not what():
        assert time.monotonic() < deadline
        time.sleep(0.05)


# -- with servers


def test_a_server_takes_what_is_pushed(served: Served) -> None:
    run, folder = served.run, served.folder
    assert served.refuses("anna.creds")
    (pushed,) = ok(run("auth", "account", "push", "APP", "--json")).json
    assert pushed["ok"]
    with served.connect("anna.creds") as client:
        client.request("$JS.API.STREAM.CREATE.S", b'{"name": "S", "subjects": ["s"]}')
        assert client.jetstream().stream_names() == ["S"]
    found = ok(run("auth", "account", "query", "APP", folder / "app.jwt", "-j")).json
    assert found == run("auth", "account", "info", "APP", "-j").json
    assert decode((folder / "app.jwt").read_text(), AccountClaims).name == "APP"
    assert run("auth", "account", "query", "APP", folder / "app.jwt").status == 1  # exists
    assert run("auth", "account", "query", KeyPair(0, b"x" * 32).public).status == 1
    # a limit
    ok(run("auth", "account", "edit", "APP", "--connections", "1"))
    ok(run("auth", "account", "push", "APP"))
    with served.connect("anna.creds"):
        assert served.refuses("anna.creds")
    # a revocation
    assert run("auth", "user", "rm", "anna", "APP", "--revoke", stdin=b"no\n").status == 130
    ok(run("auth", "user", "rm", "anna", "APP", "--revoke", "--force"))
    assert not served.refuses("anna.creds")
    ok(run("auth", "account", "push", "APP"))
    eventually(lambda: served.refuses("anna.creds"))


def test_permissions_and_scoped_keys_hold(served: Served) -> None:
    run, folder = served.run, served.folder
    rules = ("--sub-allow", "orders.>", "--sub-allow", "_INBOX.>", "--pub-deny", "secret.>")
    ok(run("auth", "user", "add", "rita", "APP", *rules, "--credential", folder / "rita.creds"))
    ok(run("auth", "account", "keys", "add", "APP", "reader", *rules, "--description", "reads"))
    ok(
        run(
            "auth", "user", "add", "rob", "APP", "--key", "reader", "--credential",
            folder / "rob.creds",
        )
    )  # fmt: skip
    ok(run("auth", "account", "push", "APP"))
    for creds in ("rita.creds", "rob.creds"):
        with served.connect(creds) as client:
            client.subscribe("orders.new")
            client.publish("orders.new", b"")
            client.rtt()
            assert client.last_error is None
            client.publish("secret.x", b"")
            client.rtt()
            assert "Permissions Violation" in str(client.last_error)
    refused = run("auth", "user", "add", "x", "APP", "--key", "reader", "--pub-allow", "a")
    assert refused.status == 2
    assert run("auth", "user", "edit", "rob", "APP", "--pub-allow", "a").status == 1
    listed = {each["name"]: each["scoped"] for each in run("auth", "user", "ls", "APP", "-j").json}
    assert listed == {"anna": False, "rita": False, "rob": True}
    # the users of a role go with its key
    ok(run("auth", "account", "keys", "rm", "APP", "reader", "-f"))
    ok(run("auth", "account", "push", "APP"))
    eventually(lambda: served.refuses("rob.creds"))
    assert not served.refuses("rita.creds")


def test_accounts_share_and_map_subjects(served: Served) -> None:
    run, folder = served.run, served.folder
    ok(run("auth", "account", "add", "OTHER", "--defaults"))
    ok(run("auth", "user", "add", "otto", "OTHER", "--credential", folder / "otto.creds"))
    ok(run("auth", "account", "exports", "add", "help", "help.>", "APP", "--service"))
    ok(run("auth", "account", "exports", "add", "news", "news.>", "APP"))
    words = ("auth", "account", "imports", "add")
    ok(run(*words, "help", "help.>", "OTHER", "--source", "APP", "--service", "--local", "ask.>"))
    ok(run(*words, "news", "news.>", "OTHER", "--source", "APP"))
    ok(run("auth", "account", "mappings", "add", "APP", "old.*", "new.$1"))
    for name in ("APP", "OTHER"):
        ok(run("auth", "account", "push", name))
    with served.connect("anna.creds") as anna, served.connect("otto.creds") as otto:
        helper, mapped = anna.subscribe("help.>"), anna.subscribe("new.*")
        reader = otto.subscribe("news.*")
        anna.rtt(), otto.rtt()
        otto.publish("ask.me", b"?", reply="answers.here")
        assert helper.next(timeout=20).subject == "help.me"
        anna.publish("news.today", b"!")
        assert reader.next(timeout=20).subject == "news.today"
        anna.publish("old.one", b"")
        assert mapped.next(timeout=20).subject == "new.one"
    assert len(run("auth", "account", "exports", "ls", "APP", "-j").json) == 2
    assert "ask.>" in run("auth", "account", "imports", "ls", "OTHER").out
    assert run("auth", "account", "imports", "info", "ask.>", "OTHER", "-j").json["name"] == "help"
    assert run(*words, "again", "news.>", "OTHER", "--source", "APP").status == 1
    ok(run("auth", "account", "imports", "rm", "ask.>", "OTHER", "-f"))
    ok(run("auth", "account", "exports", "edit", "help.>", "APP", "--description", "helps"))
    assert run("auth", "account", "exp", "i", "help", "APP", "-j").json["description"] == "helps"
    ok(run("auth", "account", "exports", "rm", "help.>", "APP", "-f"))
    ok(run("auth", "account", "mappings", "rm", "APP"))
    claims = run("auth", "account", "info", "APP", "-j").json["nats"]
    assert ([each["name"] for each in claims["exports"]], claims["mappings"]) == (["news"], {})


def test_credentials_expire(served: Served) -> None:
    run, folder = served.run, served.folder
    ok(run("auth", "account", "push", "APP"))
    words = ("auth", "user", "credential")
    made = ok(run(*words, folder / "short.creds", "anna", "APP", "--expire", "1s", "-j")).json
    assert made["expires"] - time.time() < 5
    eventually(lambda: served.refuses("short.creds"))
    assert not served.refuses("anna.creds")
    assert "exp" not in run("auth", "user", "info", "anna", "APP", "-j").json


def test_a_generated_configuration_trusts_an_operator(acme: Run, tmp_path: Path) -> None:
    for words in (("--operator", "ACME", "--resolver", tmp_path / "r"), ("--operator", "ACME")):
        text = ok(acme("server", "generate", "-", *words)).out
        assert 'operator: "ey' in text
        assert "resolver_preload" in text


# -- without


def test_what_is_made_is_sound_and_private(acme: Run, tmp_path: Path) -> None:
    root = tmp_path / "data" / "nats" / "nsc"
    ok(acme("auth", "user", "add", "anna", "APP", "--tags", "Web", "--expire", "1h"))
    operator = decode((root / "stores/ACME/ACME.jwt").read_text(), OperatorClaims)
    account = decode((root / "stores/ACME/accounts/APP/APP.jwt").read_text(), AccountClaims)
    user = decode((root / "stores/ACME/accounts/APP/users/anna.jwt").read_text(), UserClaims)
    system = decode((root / "stores/ACME/accounts/SYSTEM/SYSTEM.jwt").read_text(), AccountClaims)
    assert account.iss in (operator.nats.signing_keys or [])
    assert operator.nats.system_account == system.sub
    assert user.iss == account.sub
    assert (user.nats.tags, 3500 < user.exp - time.time() < 3601) == (["web"], True)
    assert account.nats.limits.disk_storage == -1
    for each in (operator, account, user, system):
        assert list(each.problems()) == []
    key = root / "keys/keys" / user.sub[0] / user.sub[1:3] / f"{user.sub}.nk"
    assert KeyPair.from_seed(key.read_text().strip()).public == user.sub
    for path in root.rglob("*"):
        assert stat.S_IMODE(path.stat().st_mode) & 0o077 == 0, path
    assert json.loads((root / "stores/ACME/.nsc").read_text())["name"] == "ACME"


def test_edits_keep_what_they_do_not_know(acme: Run, tmp_path: Path) -> None:
    from pelton.cli.auth.store import Store

    store = Store(tmp_path / "data" / "nats" / "nsc")
    account = store.account("ACME", "APP")
    account.nats["info_url"] = "https://example.org"
    account.claims["aud"] = "somebody"
    operator = store.operator("ACME")
    store.sign(account, store.signer(operator.key))
    ok(acme("auth", "account", "edit", "APP", "--tags", "a", "--tags", "b", "--no-jetstream"))
    ok(acme("auth", "account", "edit", "APP", "--no-tags", "a", "--expiry", "2h"))
    found = acme("auth", "account", "info", "APP", "-j").json
    assert (found["nats"]["info_url"], found["aud"]) == ("https://example.org", "somebody")
    assert found["nats"]["tags"] == ["b"]
    assert "disk_storage" not in found["nats"]["limits"]
    assert found["exp"] > time.time() + 7000
    assert found["iss"] != found["sub"]
    ok(acme("auth", "account", "edit", "APP", "--expiry", "0s"))
    assert "exp" not in acme("auth", "account", "info", "APP", "-j").json


def test_operators_are_listed_edited_and_chosen(acme: Run) -> None:
    ok(acme("auth", "operator", "add", "SECOND", "--no-signing-key"))
    listed = {each["name"]: each for each in acme("auth", "op", "ls", "-j").json}
    assert [name for name, each in listed.items() if each["selected"]] == ["SECOND"]
    assert acme("auth", "operator", "list", "--names").out == "ACME\nSECOND\n"
    ok(acme("auth", "operator", "select", "ACME"))
    assert acme("auth", "account", "ls", "--names").out == "APP\nSYSTEM\n"
    assert acme("auth", "account", "ls", "SECOND", "--names").out == "SYSTEM\n"
    words = ("auth", "operator", "edit", "ACME", "--service", "nats://a", "--account-server")
    edited = ok(acme(*words, "http://b", "-j")).json["nats"]
    assert edited["operator_service_urls"] == ["nats://a"]
    assert edited["account_server_url"] == "http://b"
    (key,) = acme("auth", "operator", "keys", "ls", "ACME").out.split()
    (added,) = ok(acme("auth", "operator", "sk", "add", "ACME")).out.split()
    assert acme("auth", "operator", "keys", "ls", "ACME").out.split() == [key, added]
    gone = ok(acme("auth", "operator", "keys", "rm", "ACME", key, "-f", "-j")).json
    assert sorted(gone["accounts"]) == ["APP", "SYSTEM"]
    ok(acme("auth", "account", "edit", "APP", "--imports", "3"))
    assert acme("auth", "account", "info", "APP", "-j").json["iss"] == added


@pytest.mark.parametrize("sealed", [False, True])
def test_an_operator_is_backed_up_and_restored(
    acme: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, sealed: bool
) -> None:
    ok(acme("auth", "account", "keys", "add", "APP", "reader", "--sub-allow", "a"))
    ok(acme("auth", "user", "add", "anna", "APP", "--key", "reader"))
    key = ()
    if sealed:
        ok(acme("auth", "nkey", "gen", "curve", "--output", tmp_path / "x.nk"))
        key = ("--key", tmp_path / "x.nk")
    file = tmp_path / "backup"
    ok(acme("auth", "operator", "backup", "ACME", file, *key))
    assert (b"SO" in file.read_bytes()) or sealed
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert acme("auth", "operator", "backup", "ACME", file).status == 1
    assert acme("auth", "operator", "restore", "ACME", file, *key).status == 1  # is there
    before = acme("auth", "user", "info", "anna", "APP", "-j").json
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "elsewhere"))
    assert acme("auth", "operator", "restore", "OTHER", file, *key).status == 1
    if sealed:
        assert acme("auth", "operator", "restore", "ACME", file).status == 1
    ok(acme("auth", "operator", "restore", "ACME", file, *key))
    assert acme("auth", "user", "info", "anna", "APP", "-j").json == before
    ok(acme("auth", "user", "add", "bert", "APP", "--key", "reader"))
    ok(acme("auth", "account", "edit", "APP", "--imports", "2"))
    words = ("auth", "user", "credential", tmp_path / "a.creds", "anna", "APP")
    ok(acme(*words))
    credentials = read_credentials((tmp_path / "a.creds").read_text())
    assert KeyPair.from_seed(credentials.seed).public == before["sub"]


def test_an_operator_is_taken_over(
    acme: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = tmp_path / "data" / "nats" / "nsc"
    token = root / "stores" / "ACME" / "ACME.jwt"
    keys = list((root / "keys" / "keys" / "O").rglob("*.nk"))
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "elsewhere"))
    assert "is missing" in acme("auth", "operator", "import", token).err
    ok(acme("auth", "operator", "import", token, *keys))
    assert acme("auth", "operator", "ls", "--names").out == "ACME\n"
    ok(acme("auth", "account", "add", "NEW", "--defaults"))
    assert acme("auth", "operator", "import", token, *keys).status == 1
    user = root / "stores" / "ACME" / "accounts" / "APP" / "APP.jwt"
    assert "operator" in acme("auth", "operator", "import", user, *keys).err


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (("operator", "add", "ACME"), "already"),
        (("operator", "add", "../x"), "can't be a name"),
        (("operator", "info", "NONE"), "no operator NONE"),
        (("account", "add", "APP", "--defaults"), "already"),
        (("account", "info", "NONE"), "no account NONE"),
        (("user", "info", "NONE", "APP"), "no user NONE"),
        (("user", "ls", "NONE"), "no account NONE"),
        (("user", "info"), "pelton auth user add"),
        (("user", "add", "a", "APP", "--key", "role"), "no signing key role"),
        (("user", "add", "a", "APP", "--source", "nonsense"), "cidr"),
        (("user", "add", "a", "APP", "--hours", "nonsense"), "HH:MM:SS"),
        (("account", "keys", "rm", "APP", "none", "-f"), "no signing key none"),
        (("account", "mappings", "add", "APP", "a.*", "b.$2"), "wildcard index"),
        (("account", "mappings", "rm", "APP", "a"), "no mapping of a"),
        (("account", "exports", "rm", "a", "APP", "-f"), "no export a"),
        (("account", "imports", "add", "n", "s", "APP", "--source", "NONE"), "no account NONE"),
        (("operator", "keys", "rm", "ACME", "OABC", "-f"), "no signing key OABC"),
    ],
)
def test_mistakes_change_nothing(acme: Run, tmp_path: Path, words: Any, text: str) -> None:
    root = tmp_path / "data" / "nats" / "nsc" / "stores"
    before = {path: path.read_bytes() for path in root.rglob("*") if path.is_file()}
    ran = acme("auth", *words)
    assert ran.status in (1, 2)
    assert text in ran.err
    assert ran.err.count("\n") == 1
    assert before == {path: path.read_bytes() for path in root.rglob("*") if path.is_file()}


def test_a_damaged_file_is_named(acme: Run, tmp_path: Path) -> None:
    path = tmp_path / "data/nats/nsc/stores/ACME/accounts/APP/APP.jwt"
    text = path.read_text()
    path.write_text(text[:-4] + "AAAA")
    ran = acme("auth", "account", "info", "APP")
    assert (ran.status, str(path) in ran.err) == (1, True)


def test_names_are_chosen_at_a_terminal(acme: Run, tmp_path: Path) -> None:
    ok(acme("auth", "account", "add", "BETA", "--defaults"))
    environment = {
        "XDG_DATA_HOME": str(tmp_path / "data"),
        "XDG_CONFIG_HOME": str(tmp_path / "config"),
    }
    with Terminal("auth", "account", "info", environment=environment) as terminal:
        terminal.expect("Which account")
        terminal.send("BETA")
        terminal.expect("Account BETA")
        assert terminal.status() == 0
    assert acme("auth", "account", "info").status == 2


# -- keys


@pytest.mark.parametrize("kind", ["user", "account", "server", "cluster", "operator", "x25519"])
def test_keys_are_made_and_shown(run: Run, tmp_path: Path, kind: str) -> None:
    path = tmp_path / "key"
    seed, public = ok(run("auth", "nkey", "gen", kind, "--public")).out.split()
    path.write_text(seed)
    assert ok(run("auth", "nkey", "show", path)).out == f"{public}\n"
    made = ok(run("auth", "nk", "gen", kind, "-j")).json
    assert made["public"][0] == public[0]
    assert made["public"] != public


def test_entropy_and_output(run: Run, tmp_path: Path) -> None:
    (tmp_path / "random").write_bytes(bytes(range(40)))
    words = ("auth", "nkey", "gen", "user", "--entropy", tmp_path / "random")
    assert ok(run(*words)).out == ok(run(*words)).out
    ok(run(*words, "--output", tmp_path / "key"))
    assert stat.S_IMODE((tmp_path / "key").stat().st_mode) == 0o600
    assert run(*words, "--output", tmp_path / "key").status == 1
    (tmp_path / "random").write_bytes(b"few")
    assert run(*words).status == 1


def test_files_are_signed(run: Run, tmp_path: Path) -> None:
    data, key, signature = tmp_path / "data", tmp_path / "key", tmp_path / "signature"
    data.write_bytes(b"\x00signed\xff")
    key.write_text(run("auth", "nkey", "gen", "account").out)
    signed = ok(run("auth", "nkey", "sign", data, key, "-j")).json
    signature.write_text(signed["signature"])
    import base64

    raw = base64.urlsafe_b64decode(signed["signature"] + "==")
    assert verify(signed["public"], data.read_bytes(), raw)
    ok(run("auth", "nkey", "verify", data, signature, key))
    public = tmp_path / "public"
    public.write_text(signed["public"])
    ok(run("auth", "nkey", "verify", data, signature, public))
    data.write_bytes(b"changed")
    assert run("auth", "nkey", "verify", data, signature, key).status == 1
    signature.write_text("not base64!")
    assert run("auth", "nkey", "verify", data, signature, key).status == 1


@pytest.mark.parametrize("form", ["--b64", "--no-b64"])
def test_files_are_sealed(run: Run, tmp_path: Path, form: str) -> None:
    data = tmp_path / "data"
    data.write_bytes(bytes(range(256)))
    keys = []
    for name in ("one", "two"):
        made = run("auth", "nkey", "gen", "curve", "-j").json
        (tmp_path / name).write_text(made["seed"])
        keys.append(made["public"])
    sealed, opened = tmp_path / "sealed", tmp_path / "opened"
    words = ("auth", "nkey", "seal", data, tmp_path / "one", keys[1], form)
    ok(run(*words, "--output", sealed))
    assert data.read_bytes() not in sealed.read_bytes()
    ok(run("auth", "nkey", "open", sealed, tmp_path / "two", keys[0], form, "--output", opened))
    assert opened.read_bytes() == data.read_bytes()
    assert run("auth", "nkey", "unseal", sealed, tmp_path / "two", keys[1], form).status == 1
    assert run("auth", "nkey", "seal", data, tmp_path / "one", "nonsense").status == 1
    (tmp_path / "user").write_text(run("auth", "nkey", "gen", "user").out)
    assert run("auth", "nkey", "seal", data, tmp_path / "user", keys[1]).status == 1
