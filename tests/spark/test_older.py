"""Readers on a Spark that does not say where a micro-batch begins, called in the order of Spark 4.0."""

import json
import warnings

import pytest

from pelton.spark.older import WithoutStart
from pelton.spark.versions import check_version


class Numbers:
    """A stream of numbers, three in a micro-batch; offsets are the last one read."""

    def __init__(self, last, initial=0):
        self.last, self.initial = last, initial
        self.bound = None
        self.committed = []

    def initialOffset(self):  # noqa: N802  Spark's name
        return {"at": self.initial}

    def prepareForTriggerAvailableNow(self):  # noqa: N802  Spark's name
        self.bound = self.last

    def latestOffset(self, start, limit):  # noqa: N802  Spark's name
        last = self.last if self.bound is None else self.bound
        return {"at": max(start["at"], min(last, start["at"] + 3))}

    def partitions(self, start, end):
        return [range(start["at"] + 1, end["at"] + 1)]

    def read(self, partition):
        yield from partition

    def commit(self, end):
        self.committed.append(end["at"])


class Spark40:
    """The calls of a query's lives, of which only the logs of its checkpoint outlive one."""

    def __init__(self):
        self.offsets, self.commits, self.rows = [], 0, []

    def begin(self, numbers, **given):
        self.reader = WithoutStart(numbers, **given)
        if self.offsets:
            self.plan(self.offsets[-1], self.offsets[-1])
        if len(self.offsets) > self.commits:
            self.batch()

    def once(self, *, dies=False):
        """One trigger; whether there was a batch."""
        end = json.dumps(self.reader.latestOffset())
        if self.offsets and end == self.offsets[-1]:
            return False
        self.offsets.append(end)
        if not dies:
            self.batch()
        return True

    def batch(self):
        start = self.offsets[-2] if self.commits else json.dumps(self.reader.initialOffset())
        parts = self.plan(start, self.offsets[-1])
        self.rows += [row for part in parts for row in self.reader.read(part)]
        self.commits += 1
        self.reader.commit(json.loads(self.offsets[-1]))

    def plan(self, start, end):
        return self.reader.partitions(json.loads(start), json.loads(end))


def test_each_batch_begins_where_the_one_before_ended():
    spark = Spark40()
    numbers = Numbers(7)
    spark.begin(numbers)
    while spark.once():
        pass
    assert spark.rows == list(range(1, 8))
    assert [json.loads(end)["at"] for end in spark.offsets] == [3, 6, 7]
    assert numbers.committed == [3, 6, 7]


def test_it_goes_on_after_a_kill_and_after_a_stop():
    spark = Spark40()
    spark.begin(Numbers(20))
    assert spark.once()
    assert spark.once(dies=True)
    spark.begin(Numbers(20))  # repeats the batch
    assert spark.rows == list(range(1, 7))
    assert spark.once()
    spark.begin(Numbers(20))
    while spark.once():
        pass
    assert spark.rows == list(range(1, 21))


def test_a_first_batch_is_repeated_from_its_beginning():
    spark = Spark40()
    spark.begin(Numbers(5))
    assert spark.once(dies=True)
    spark.begin(Numbers(5))
    assert spark.once()
    assert spark.rows == [1, 2, 3, 4, 5]


def test_a_query_begins_at_the_place_that_its_first_batch_was_planned_from():
    spark = Spark40()
    numbers = Numbers(10, initial=8)
    spark.begin(numbers)
    end = json.dumps(spark.reader.latestOffset())
    numbers.initial = 10  # where it would begin now
    spark.offsets.append(end)
    spark.batch()
    assert spark.rows == [9, 10]


def test_an_end_of_the_options_is_fixed_at_the_first_batch():
    spark = Spark40()
    numbers = Numbers(5)
    spark.begin(numbers, ends=True)
    assert spark.once()
    numbers.last = 9
    assert spark.once()
    assert not spark.once()
    assert spark.rows == [1, 2, 3, 4, 5]


def test_a_start_that_it_was_not_told_is_refused():
    """Spark's wrapper for Trigger.AvailableNow asks for an end before it plans the empty batch."""
    reader = WithoutStart(Numbers(20))
    end = reader.latestOffset()
    with pytest.raises(RuntimeError, match="triggerAvailableNowWrapper"):
        reader.partitions({"at": 12}, end)


def test_versions_are_refused_warned_of_or_right():
    with pytest.raises(RuntimeError, match=r"need Spark 4\.0 or newer; this is Spark 3\.5\.9"):
        check_version("3.5.9")
    with pytest.warns(UserWarning, match=r"Spark 4\.1\.99 .* one micro-batch"):
        check_version("4.1.99")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        check_version("4.1.99")  # once
        for version in ("4.2.0", "4.3.0-SNAPSHOT", "5.0.0.dev1"):
            check_version(version)
