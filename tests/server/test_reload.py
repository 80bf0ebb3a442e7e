"""Which settings a reload changes."""

from dataclasses import fields, replace

from penstock.server.reload import changes
from penstock.server.settings import RELOADABLE, Settings


def test_every_reloadable_name_is_a_setting():
    assert {each.name for each in fields(Settings)} >= RELOADABLE


def test_nothing_changed_is_nothing_to_do():
    assert changes(Settings(), Settings()) == ([], [])


def test_what_can_change_is_listed_and_what_cannot_is_told():
    old = Settings()
    new = replace(old, debug=True, ping_interval_ns=5, port=1, jetstream=True, config_digest="x")
    changed, refused = changes(old, new)
    assert changed == ["debug", "ping_interval_ns"]
    assert refused == [
        "config reload not supported for port: old=4222, new=1",
        "config reload not supported for jetstream: old=False, new=True",
    ]
