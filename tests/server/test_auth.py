"""Credentials."""

import pytest

from penstock.server.auth import authenticate
from penstock.server.settings import Settings
from penstock.server.settings.users import User

USERS = Settings(users=[User("a", "x"), User("b", "y"), User("ü", "ß")])


@pytest.mark.parametrize(
    ("settings", "user", "password", "token", "known_as"),
    [
        (Settings(), "", "", "", ""),
        (Settings(), "any", "thing", "", "any"),
        (Settings(user="a", password="x"), "a", "x", "", "a"),
        (Settings(user="a", password="x"), "a", "X", "", None),
        (Settings(user="a", password="x"), "", "", "", None),
        (Settings(user="a", password="x"), "a", "", "x", None),
        (Settings(user="a"), "a", "", "", "a"),
        (Settings(token="t"), "", "", "t", "[token]"),
        (Settings(token="t"), "", "", "", None),
        (Settings(token="t"), "t", "t", "", None),
        (USERS, "a", "x", "", "a"),
        (USERS, "b", "y", "", "b"),
        (USERS, "ü", "ß", "", "ü"),
        (USERS, "a", "y", "", None),
        (USERS, "c", "x", "", None),
        (USERS, "", "", "", None),
        (USERS, "\ud800", "", "", None),
    ],
)
def test_who_is_let_in(settings, user, password, token, known_as):
    assert authenticate(settings, user, password, token) == known_as
