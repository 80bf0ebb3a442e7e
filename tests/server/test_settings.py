"""Settings as values: what their repr leaves out, and what does not count when they are compared."""

import pytest
from msgspec import Struct

from pelton.server.auth import Admitted
from pelton.server.settings import Encryption, OriginServer, Settings
from pelton.server.settings.accounts import AccountSettings
from pelton.server.settings.declared import Declared
from pelton.server.settings.leafnodes import LeafNodes, LeafRemote
from pelton.server.settings.redacted import Redacted
from pelton.server.settings.tls import Tls
from pelton.server.settings.users import User
from pelton.server.settings.websocket import Websocket

SECRET = "s3cret"
WITH_SECRETS: list[Redacted] = [
    Admitted("ann", jwt=SECRET, stored=SECRET),
    AccountSettings("A", jwt=SECRET),
    Encryption(key=SECRET, previous=SECRET),
    LeafNodes(password=SECRET),
    LeafRemote(nkey=SECRET),
    OriginServer("hub", password=SECRET, token=SECRET),
    Settings(password=SECRET, token=SECRET),
    User("ann", password=SECRET),
    Websocket(password=SECRET, token=SECRET),
]


@pytest.mark.parametrize("value", WITH_SECRETS, ids=lambda value: type(value).__name__)
def test_a_repr_has_no_secret(value: Redacted) -> None:
    assert SECRET not in repr(value)
    assert repr(value).startswith(f"{type(value).__name__}({type(value).__struct_fields__[0]}=")
    assert set(value.secrets) <= set(value.__struct_fields__)


def test_a_secret_inside_another_value_is_left_out_too() -> None:
    settings = Settings(users=[User("ann", password=SECRET)], encryption=Encryption(key=SECRET))
    assert "ann" in repr(settings)
    assert SECRET not in repr(settings)


@pytest.mark.parametrize(
    ("one", "same", "other"),
    [
        (Tls(ca_file="a"), Tls(ca_file="a", loaded=b"pem"), Tls(ca_file="b")),
        (Declared({}, "c", place="f:1:1"), Declared({}, "c", place="f:2:1"), Declared({}, "d")),
    ],
)
def test_what_is_no_setting_does_not_count(one: Struct, same: Struct, other: Struct) -> None:
    assert one == same
    assert one != other
    assert one != Settings()
