"""A stream that takes batches on both servers of a comparison, and publishers of both kinds."""

import itertools
import re

NUMBERS = itertools.count(1)
ABANDONED = "SUB $JS.EVENT.ADVISORY.STREAM.BATCH_ABANDONED.> 4\r\n"
COMMIT = "Nats-Batch-Commit: 1"
EOB = "Nats-Batch-Commit: eob"


class Batches:
    """A stream that takes both kinds of batches, and a publisher."""

    def __init__(self, client, **config):
        self.client = client
        self.name = f"BATCH{next(NUMBERS)}"
        self.config = {
            "name": self.name,
            "subjects": [f"{self.name}.>"],
            "storage": "memory",
            "allow_atomic": True,
            "allow_batched": True,
        } | config
        client.say(ABANDONED + "SUB last 7\r\n")
        client.made.append(self.name)
        answer = client.ask(f"STREAM.CREATE.{self.name}", self.config)
        assert "error" not in answer, answer

    def put(self, batch, seq, *more, body="x", subject="a", reply="in.r"):
        """One message of an atomic batch; `more`: further header lines."""
        lines = []
        if batch is not None:
            lines.append(f"Nats-Batch-Id: {batch}")
        if seq is not None:
            lines.append(f"Nats-Batch-Sequence: {seq}")
        return self.client.publish(
            f"{self.name}.{subject}", body, "\n".join([*lines, *more]), reply
        )

    def fast(self, batch, seq, op, *, flow=10, gap="ok", body="x", subject="a", headers=None):
        """One message of a fast-ingest batch."""
        return self.client.publish(
            f"{self.name}.{subject}", body, headers, f"in.{batch}.{flow}.{gap}.{seq}.{op}.$FI"
        )

    def plain(self, subject="a", body="x", headers=None):
        return self.client.publish(f"{self.name}.{subject}", body, headers, "in.p")

    def look(self):
        """Every message; how many are there."""
        found = 0
        for seq in range(1, self.last() + 1):
            found += "message" in self.client.ask(f"STREAM.MSG.GET.{self.name}", {"seq": seq})
        return found

    def last(self):
        """The highest sequence, of a sealed stream any that is higher; the same on both."""
        seen = self.client.publish(
            f"{self.name}.a", "x", "Nats-Expected-Last-Sequence: 99999", "last"
        )
        found = re.search(rb"wrong last sequence: (\d+)", seen["7"][0][3])
        return int(found[1]) if found else 12
