"""Garbage collections of a server do not get longer with the number of its objects."""

import gc
import weakref

import pytest

from pelton.server.short_collections import LONG_SECONDS, WHOLE_AGAIN_SECONDS, ShortCollections


class Thing:
    """An object that may refer to itself."""

    def __init__(self):
        self.other = None


class Clock:
    """Each look at it takes some time."""

    def __init__(self):
        self.now = 0.0
        self.step = 0.0

    def __call__(self):
        self.now += self.step
        return self.now


@pytest.fixture
def clock():
    gc.collect()
    clock = Clock()
    collections = ShortCollections(clock)
    collections.open()
    gc.disable()
    yield clock
    gc.enable()
    collections.close()
    gc.unfreeze()


def circle():
    one, other = Thing(), Thing()
    one.other, other.other = other, one
    return one


def test_what_survives_a_long_collection_is_set_aside(clock):
    kept = [Thing() for _ in range(1000)]
    before = gc.get_freeze_count()
    gc.collect()
    assert gc.get_freeze_count() == before
    clock.step = LONG_SECONDS
    gc.collect()
    assert gc.get_freeze_count() >= before + len(kept)
    gone = weakref.ref(kept[0])
    kept.clear()
    assert gone() is None


def test_circles_that_were_set_aside_are_found_an_hour_later(clock):
    clock.step = LONG_SECONDS
    kept = circle()
    gone = weakref.ref(kept)
    gc.collect()
    del kept
    gc.collect()
    assert gone() is not None
    clock.now += WHOLE_AGAIN_SECONDS
    gc.collect()
    assert gone() is None


def test_young_generations_set_nothing_aside(clock):
    clock.step = LONG_SECONDS
    before = gc.get_freeze_count()
    gc.collect(0)
    gc.collect(1)
    assert gc.get_freeze_count() == before
