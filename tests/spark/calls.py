"""Calling readers as Spark does, without a JVM."""

import pickle


def rows_of(reader, partitions):
    """The rows of partitions, read from pickled copies as on executors."""
    rows = []
    for partition in partitions:
        copy, part = pickle.loads(pickle.dumps((reader, partition)))
        rows += [row for batch in copy.read(part) for row in batch.to_pylist()]
    return rows


def seqs_of(reader, partitions):
    """The sequences of their rows."""
    return [row["seq"] for row in rows_of(reader, partitions)]


def places_of(reader, partitions):
    """Stream and sequence of their rows."""
    return [(row["stream"], row["seq"]) for row in rows_of(reader, partitions)]


def run_batches(reader, read=seqs_of, at_most=100):
    """Micro-batches until nothing is left; in the order of calls Spark makes."""
    offset = reader.initialOffset()
    batches = []
    for _ in range(at_most):
        end = reader.latestOffset(offset, reader.getDefaultReadLimit())
        if end == offset:
            return batches
        batches.append(read(reader, reader.partitions(offset, end)))
        reader.commit(end)
        offset = end
    raise AssertionError("no end")
