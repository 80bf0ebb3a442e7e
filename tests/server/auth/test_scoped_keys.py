"""Templates of scoped signing keys."""

import pytest

from pelton.server.auth.claims import (
    AccountClaims,
    AccountPart,
    Permission,
    Template,
    UserClaims,
    UserPart,
)
from pelton.server.auth.scoped_keys import EXPANSIONS_MAX, ScopeError, fill

USER = UserClaims(
    sub="UKEY", name="ann", nats=UserPart(issuer_account="AKEY", tags=["dept:x", "dept:y", "t:z"])
)
ACCOUNT = AccountClaims(sub="AKEY", name="acc", nats=AccountPart(tags=["region:eu"]))


def allowed(*subjects, user=USER):
    return fill(Template(pub=Permission(allow=list(subjects))), user, ACCOUNT).pub


@pytest.mark.parametrize(
    ("subject", "filled"),
    [
        ("plain.>", ["plain.>"]),
        ("{{name()}}.{{ Subject() }}", ["ann.UKEY"]),
        ("{{account-name()}}.{{account-subject()}}", ["acc.AKEY"]),
        ("{{tag(dept)}}.a", ["x.a", "y.a"]),
        ("{{tag(dept)}}.{{tag(t)}}.{{account-tag(region)}}", ["x.z.eu", "y.z.eu"]),
        ("{{tag(DEPT)}}", ["x", "y"]),
    ],
)
def test_what_is_put_in(subject, filled):
    assert allowed(subject).allow == filled
    assert fill(Template(sub=Permission(deny=[subject])), USER, ACCOUNT).sub.deny == filled


def test_a_subject_that_can_not_be_filled_is_left_out_of_what_is_allowed():
    found = allowed("a", "{{tag(none)}}.x", "{{name()}}.b")
    assert (found.allow, found.deny) == (["a", "ann.b"], [])


def test_when_nothing_is_left_nothing_is_allowed():
    found = allowed("{{tag(none)}}.x")
    assert (found.allow, found.deny) == ([], [">"])


def test_what_is_denied_is_never_left_out():
    for subject in ("{{tag(none)}}.x", "{{name()}}..x"):
        with pytest.raises(ScopeError):
            fill(Template(pub=Permission(deny=[subject])), USER, ACCOUNT)


def test_a_name_can_not_break_out_of_its_token_into_more_than_a_subject():
    bad = UserClaims(sub="U", name="a b\tc", nats=UserPart())
    assert allowed("x.{{name()}}", user=bad).allow == []


def test_unknown_operations_are_refused():
    with pytest.raises(ScopeError, match="not defined"):
        allowed("{{secret()}}")


def test_expansion_is_bounded():
    many = UserClaims(
        sub="U", name="n", nats=UserPart(tags=[f"k:{number}" for number in range(100)])
    )
    with pytest.raises(ScopeError, match=str(EXPANSIONS_MAX)):
        allowed("{{tag(k)}}.{{tag(k)}}", user=many)
