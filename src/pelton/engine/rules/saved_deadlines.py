"""The deadlines of a rule in a file of the stream's folder.

The file is written from time to time, up to a sequence that is synced; the deadlines of later messages
are read from the messages. Without the file all messages are read.
"""

from typing import TYPE_CHECKING

from pelton.core.base.deadlines import DeadlineHeap

if TYPE_CHECKING:
    from pelton.engine.account.account import JetStreamAccount
    from pelton.engine.account.catalog import StreamEntry

SAVE_AFTER = 1_000_000
"""How many messages are stored before the deadlines are written again."""


class SavedDeadlines:
    """The deadlines of one rule of one stream. A stream in memory has no file."""

    def __init__(self, account: "JetStreamAccount", entry: "StreamEntry", name: str) -> None:
        """Read the file."""
        self.deadlines = DeadlineHeap()
        self.note = 0  # a number that is saved with the deadlines
        self.read_from = 0  # the first sequence that the deadlines do not include
        self._core = entry.core
        self._report = account.report
        self._small = entry.files.small if entry.files is not None else None
        self._path = f"{entry.files.folder}/{name}" if entry.files is not None else ""
        if self._small is not None and self._small.exists(self._path):
            self._load()
        self._saved_upto = self._core.log.last_seq

    def _load(self) -> None:
        try:
            assert self._small is not None
            upto, note = self.deadlines.load(self._small.read_file(self._path))
        except (OSError, ValueError) as error:
            self._report(f"ignored the unreadable file {self._path}: {error}")
            return
        if upto > self._core.log.last_seq:  # the file belongs to another log
            self.deadlines = DeadlineHeap()
            return
        self.note = note
        self.read_from = upto + 1

    def save_if_worth(self) -> None:
        """Write the file when enough messages were stored since the last time. OSError."""
        if self._core.log.last_seq - self._saved_upto > max(SAVE_AFTER, len(self.deadlines)):
            self.save()

    def save(self) -> None:
        """Write the file. OSError."""
        log = self._core.log
        self._saved_upto = log.last_seq
        if self._small is not None:
            # Sync the removals first: the file does not have expired messages. After a power cut
            # that lost their removals, they would stay for ever.
            log.fsync()
            data = self.deadlines.dump(log.synced_seq, self.note)
            self._small.write_file_atomic(self._path, data, False)

    def close(self) -> None:
        """Write the file for the next opening, which then reads no message again."""
        if self._path:
            try:
                self.save()
            except OSError as error:
                self._report(f"cannot write {self._path}: {error}")
