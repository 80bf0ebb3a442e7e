"""The resolver's folder, against a dictionary; and that files are those that nats-server reads."""

import os
import tempfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pelton import nkeys
from pelton.server.auth.folder_resolver import FolderError, FolderResolver
from pelton.server.settings.operator import Resolver
from tests.server.auth import signed
from tests.server.auth.signed import account_jwt
from tests.ways import length

SECOND = 1_000_000_000
PAIRS = [signed.pair(nkeys.ACCOUNT, number) for number in range(20, 26)]
TOKENS = {p.public: [account_jwt(p, name=f"n{v}") for v in range(3)] for p in PAIRS}
KEYS = list(TOKENS)


def folder(path, clock=lambda: 0, **fields):
    return FolderResolver(Resolver("full", directory=str(path), **fields), clock)


def fetched(resolver, account):
    found = []
    resolver.fetch(account, found.append)
    return found[0]


STEPS = st.lists(
    st.tuples(
        st.sampled_from(["store", "delete", "load", "reopen"]),
        st.sampled_from(KEYS),
        st.integers(0, 2),
    ),
    max_size=25,
)


@settings(max_examples=length(20, 40), deadline=None)
@given(STEPS, st.booleans())
def test_a_full_one_is_a_dictionary(steps, hard):
    with tempfile.TemporaryDirectory() as path:
        resolver = folder(path, allow_delete=True, hard_delete=hard)
        model = {}
        for what, account, version in steps:
            if what == "store":
                resolver.store(account, TOKENS[account][version])
                model[account] = TOKENS[account][version]
            elif what == "delete" and account in model:
                resolver.delete(account)
                del model[account]
            elif what == "delete":
                with pytest.raises(FolderError):
                    resolver.delete(account)
            elif what == "reopen":
                resolver = folder(path, allow_delete=True, hard_delete=hard)
            assert fetched(resolver, account) == model.get(account)
        assert dict(resolver.all()) == model
        assert folder(path).digest() == resolver.digest()
        assert (resolver.digest() == bytes(32)) == (not model)


def test_deleting_has_to_be_allowed(tmp_path):
    resolver = folder(tmp_path)
    resolver.store(KEYS[0], TOKENS[KEYS[0]][0])
    with pytest.raises(FolderError, match="must be enabled"):
        resolver.delete(KEYS[0])


def test_a_soft_delete_keeps_the_file_aside(tmp_path):
    resolver = folder(tmp_path, allow_delete=True)
    resolver.store(KEYS[0], TOKENS[KEYS[0]][0])
    resolver.delete(KEYS[0])
    assert [p.name for p in tmp_path.iterdir()] == [f"{KEYS[0]}.jwt.deleted"]


def test_a_limit_of_a_full_one(tmp_path):
    resolver = folder(tmp_path, limit=2)
    for key in KEYS[:2]:
        resolver.store(key, TOKENS[key][0])
    resolver.store(KEYS[0], TOKENS[KEYS[0]][1])
    with pytest.raises(FolderError, match="full"):
        resolver.store(KEYS[2], TOKENS[KEYS[2]][0])


def test_a_cache_lets_go_of_what_was_used_least_lately(tmp_path):
    resolver = FolderResolver(Resolver("cache", directory=str(tmp_path), limit=2), lambda: 0)
    for key in KEYS[:2]:
        resolver.store(key, TOKENS[key][0])
    fetched(resolver, KEYS[0])
    resolver.store(KEYS[2], TOKENS[KEYS[2]][0])
    assert sorted(dict(resolver.all())) == sorted([KEYS[0], KEYS[2]])
    assert len(os.listdir(tmp_path)) == 2


def test_a_cache_forgets_after_its_ttl(tmp_path):
    clock = [0]
    settings_ = Resolver("cache", directory=str(tmp_path), ttl_ns=10 * SECOND)
    resolver = FolderResolver(settings_, lambda: clock[0])
    resolver.store(KEYS[0], TOKENS[KEYS[0]][0])
    clock[0] = 9 * SECOND
    assert fetched(resolver, KEYS[0])
    clock[0] = 11 * SECOND
    assert fetched(resolver, KEYS[0]) is None
    assert list(tmp_path.iterdir()) == []


def test_what_is_no_key_is_not_looked_for(tmp_path):
    (tmp_path / "x.jwt").write_text("x")
    Path(tmp_path.parent / "secret.jwt").write_text("secret")
    resolver = folder(tmp_path)
    for account in ("", "x", "../secret", signed.USER.public):
        assert fetched(resolver, account) is None
        with pytest.raises(FolderError):
            resolver.store(account, "x")
    assert dict(resolver.all()) == {}
