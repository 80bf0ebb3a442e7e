"""Users, a single user and a token: who is let in, and as whom."""

import base64

import bcrypt
import pytest

from pelton import nkeys
from pelton.server.auth import Admitted, AuthContext, Authenticator, PendingOutcome, Refused
from pelton.server.auth.connect_options import Credentials
from pelton.server.settings import Settings
from pelton.server.settings.tls import Tls
from pelton.server.settings.users import Permissions, SubjectPermission, User
from pelton.server.settings.websocket import Websocket

HASH = bcrypt.hashpw(b"x", b"$2b$04$abcdefghijklmnopqrstuu").decode()
USERS = Settings(users=[User("a", "x"), User("b", "y"), User("ü", "ß"), User("h", HASH)])
KEY = nkeys.KeyPair(nkeys.USER, bytes(range(32)))
KEYS = Settings(users=[User(nkey=KEY.public), User("a", "x")])


def decide(settings, peer=None, **shown):
    outcome = Authenticator(settings).check(Credentials(**shown), peer or AuthContext("127.0.0.1"))
    if isinstance(outcome, PendingOutcome):
        settled = []
        outcome.then(settled.append)
        while not settled:
            pass
        outcome = settled[0]
    return outcome


def known_as(settings, peer=None, **shown):
    outcome = decide(settings, peer, **shown)
    return outcome.name if isinstance(outcome, Admitted) else None


@pytest.mark.parametrize(
    ("settings", "user", "password", "token", "name"),
    [
        (Settings(), "", "", "", ""),
        (Settings(), "any", "thing", "", "any"),
        (Settings(user="a", password="x"), "a", "x", "", "a"),
        (Settings(user="a", password="x"), "a", "X", "", None),
        (Settings(user="a", password="x"), "b", "x", "", None),
        (Settings(user="a", password="x"), "", "", "", None),
        (Settings(user="a", password="x"), "a", "", "x", None),
        (Settings(user="a"), "a", "", "", "a"),
        (Settings(user="a", password=HASH), "a", "x", "", "a"),
        (Settings(user="a", password=HASH), "a", HASH, "", None),
        (Settings(token="t"), "", "", "t", "[REDACTED]"),
        (Settings(token="t"), "", "", "", None),
        (Settings(token="t"), "t", "t", "", None),
        (Settings(token=HASH), "", "", "x", "[REDACTED]"),
        (Settings(token=HASH), "", "", "y", None),
        (USERS, "a", "x", "", "a"),
        (USERS, "b", "y", "", "b"),
        (USERS, "ü", "ß", "", "ü"),
        (USERS, "h", "x", "", "h"),
        (USERS, "h", "y", "", None),
        (USERS, "h", HASH, "", None),
        (USERS, "h", "x\0" + "y" * 100, "", None),
        (USERS, "a", "y", "", None),
        (USERS, "c", "x", "", None),
        (USERS, "", "", "", None),
        (USERS, "\ud800", "", "", None),
    ],
)
def test_who_is_let_in(settings, user, password, token, name):
    shown = {"user": user, "password": password, "auth_token": token}
    assert known_as(settings, **shown) == name


def test_a_hash_that_is_none_lets_nobody_in():
    broken = Settings(users=[User("a", "$2a$11$short")])
    assert known_as(broken, user="a", password="$2a$11$short") is None
    assert known_as(broken, user="a", password="") is None


def test_an_nkey_user_signs_the_nonce():
    nonce = "0123456789abcde"
    peer = AuthContext("h", nonce=nonce)
    good = nkeys.sign_nonce(KEY.seed, nonce)
    padded = base64.b64encode(KEY.sign(nonce.encode())).decode()
    stranger = nkeys.KeyPair(nkeys.USER, bytes(32))
    assert known_as(KEYS, peer, nkey=KEY.public, sig=good) == KEY.public
    assert known_as(KEYS, peer, nkey=KEY.public, sig=padded) == KEY.public
    for nkey, sig in [
        (KEY.public, ""),
        (KEY.public, "!"),
        (KEY.public, good[:-2]),
        (KEY.public, nkeys.sign_nonce(KEY.seed, "another nonce")),
        (KEY.public, nkeys.sign_nonce(stranger.seed, nonce)),
        (stranger.public, nkeys.sign_nonce(stranger.seed, nonce)),
        ("U", good),
    ]:
        assert known_as(KEYS, peer, nkey=nkey, sig=sig) is None
    # A signature of nothing is nothing, should a connection ever be without a nonce.
    empty = nkeys.sign_nonce(KEY.seed, "")
    assert known_as(KEYS, AuthContext("h"), nkey=KEY.public, sig=empty) is None
    # A bad nkey is not made good by a password.
    assert known_as(KEYS, peer, nkey=stranger.public, user="a", password="x") is None
    assert known_as(KEYS, peer, user="a", password="x") == "a"


@pytest.mark.parametrize("who", ["a", KEY.public])
def test_who_shows_nothing_may_have_a_user(who):
    settings = Settings(users=KEYS.users, no_auth_user=who)
    assert known_as(settings) == who
    for shown in ({"user": "b"}, {"user": "a", "password": "y"}, {"nkey": KEY.public[:-1]}):
        assert known_as(settings, **shown) is None


def test_connection_types():
    settings = Settings(
        users=[User("a", "x", connection_types=frozenset({"WEBSOCKET"}))], no_auth_user="a"
    )
    for kind, name in (("WEBSOCKET", "a"), ("STANDARD", None), ("LEAFNODE", None)):
        peer = AuthContext("h", kind=kind)
        assert known_as(settings, peer, user="a", password="x") == name
        assert known_as(settings, peer) == name


def test_a_certificate_names_the_user():
    settings = Settings(users=[User("ann@example.com"), User("CN=bob")])
    for names, name in (
        (("ann@example.com",), "ann@example.com"),
        (("other", "CN=bob"), "CN=bob"),
        (("other",), None),
        ((), None),
    ):
        peer = AuthContext("h", tls_map=True, names=names)
        assert known_as(settings, peer) == name
        assert known_as(settings, peer, user="somebody") == name


def test_a_name_in_a_certificate_is_no_user_without_a_password_elsewhere():
    users = [User("cert"), User("both", "x"), User("ws", connection_types=frozenset({"STANDARD"}))]
    mapped = Settings(users=users, websocket=Websocket(port=1, tls=Tls(map=True)))
    plain = Settings(users=users)
    assert known_as(plain, user="cert") == "cert"
    assert known_as(mapped, user="cert") is None
    assert known_as(mapped, user="both", password="x") == "both"
    assert known_as(mapped, user="ws") == "ws"
    assert known_as(mapped, AuthContext("h", tls_map=True, names=("cert",))) == "cert"


def test_who_has_to_come_through_a_proxy_does_not_come():
    asked = {"user": "a", "password": "x"}
    found = decide(Settings(users=[User("a", "x", proxy_required=True)]), **asked)
    assert found.reason == "Proxy Required"
    assert decide(Settings(user="a", password="x", proxy_required=True), **asked) == found


def test_what_comes_with_a_user():
    rules = Permissions(publish=SubjectPermission(allow=["a"]))
    found = decide(
        Settings(users=[User("a", "x", account="A", permissions=rules)]), user="a", password="x"
    )
    assert (found.account, found.permissions, found.way) == ("A", rules, "users")


def test_an_account_may_not_be_asked_for():
    assert isinstance(decide(Settings(), account="A"), Refused)
    assert isinstance(decide(Settings(), new_account=True), Refused)


def test_a_reload_keeps_who_is_still_the_same():
    settings = Settings(users=[User("a", "x"), User("b", HASH), User(nkey=KEY.public)])
    authenticator = Authenticator(settings)
    a = authenticator.check(Credentials(user="a", password="x"), AuthContext("h"))
    assert authenticator.still_valid(a) is a
    narrower = Permissions(publish=SubjectPermission(deny=[">"]))
    settings.users = [User("a", "x", permissions=narrower)]
    authenticator.refresh()
    assert authenticator.still_valid(a).permissions is narrower
    for users, error in (
        ([User("b", "x")], b""),
        ([User("a", "x", account="B")], b""),
        ([User("a", "z")], b"Authorization Violation"),
    ):
        settings.users = users
        authenticator.refresh()
        assert authenticator.still_valid(a).error == error


@pytest.mark.parametrize(
    ("before", "after", "shown", "stays"),
    [
        (Settings(), Settings(), {}, True),
        (Settings(), Settings(token="t"), {}, False),
        (Settings(token="t"), Settings(token="t"), {"auth_token": "t"}, True),
        (Settings(token="t"), Settings(token="s"), {"auth_token": "t"}, False),
        (Settings(token="t"), Settings(), {"auth_token": "t"}, False),
        (Settings(user="a"), Settings(user="a"), {"user": "a"}, True),
        (Settings(user="a"), Settings(user="a", password="b"), {"user": "a"}, False),
        (Settings(user="a"), Settings(user="b"), {"user": "a"}, False),
    ],
)
def test_a_reload_of_single_credentials(before, after, shown, stays):
    authenticator = Authenticator(before)
    admitted = authenticator.check(Credentials(**shown), AuthContext("h"))
    authenticator.settings = after
    authenticator.refresh()
    assert (authenticator.still_valid(admitted) is admitted) is stays


def test_secrets_are_not_shown():
    hidden = Credentials(user="a", password="s3cret", auth_token="s3cret", jwt="s3cret")
    admitted = decide(Settings(token="s3cret"), auth_token="s3cret")
    assert "s3cret" not in f"{hidden!r} {hidden.shown} {admitted!r} {Settings(token='s3cret')!r}"
