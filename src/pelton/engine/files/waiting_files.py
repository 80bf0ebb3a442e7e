"""Configuration files that change together: one wait for the disk serves all requests of a turn.

    request      write(), remove()    nothing has changed on the disk
    end of turn  commit()             the changes are on the disk; each is settled, then the requests are answered

While more requests of the account wait for their turns, so do the changes: a wait for the disk holds up everybody for
longer than those requests take. A request of another kind commits at once, and so do a tick and a full group. So no
answer tells of a change that is not on the disk, although memory has it.

The log of a new stream calls bring() before its first write.

The module does not know what the files mean.
"""

from collections.abc import Callable

from msgspec import Struct, field

from pelton.core.base.disk import Disk
from pelton.core.broker.job import Job
from pelton.core.broker.reactor import Reactor

CHANGES_MAX = 64
"""The number of changes that one group takes: each has two open files while it is written."""

Settle = Callable[[OSError | None], OSError | None]
Done = Callable[[OSError | None], object]


class _Change(Struct, eq=False):
    """A change that waits: files with their content, or a call that removes files."""

    folder: str
    settle: Settle
    paths: list[str] = field(default_factory=list)
    data: bytes = b""
    parent: str = ""
    durable: bool = True
    unlink: Callable[[], object] | None = None
    done: bool = False
    error: OSError | None = None
    answers: list[Done] = field(default_factory=list)


class WaitingFiles:
    """The changes of one account's files that wait, each with a key."""

    def __init__(self, reactor: Reactor, disk: Disk) -> None:
        """Nothing waits."""
        self._disk = disk
        self._job = Job(reactor, self._end_of_turn)
        self.more: Callable[[], object] = lambda: False  # whether more requests wait
        self._changes: dict[object, _Change] = {}

    def write(
        self,
        key: object,
        paths: list[str],
        data: bytes,
        settle: Settle,
        *,
        durable: bool = True,
        new_folder: bool = False,
    ) -> None:
        """Replace files of one folder with the same bytes, durably unless the caller syncs them later.

        `settle` is called when that is done, or with the error: then some of the files may be the
        new ones. It returns the error for the answers. `new_folder`: the name of the folder is not
        on the disk either.
        """
        folder = paths[0].rpartition("/")[0]
        parent = folder.rpartition("/")[0] if new_folder else ""
        self._add(key, _Change(folder, settle, paths, data, parent, durable))

    def remove(
        self, key: object, folder: str, unlink: Callable[[], object], settle: Settle
    ) -> None:
        """Remove files of a folder with `unlink`, which may raise OSError, durably."""
        self._add(key, _Change(folder, settle, unlink=unlink))

    def waits(self, key: object) -> bool:
        """Return whether a change with this key is not on the disk yet."""
        return key in self._changes

    def then(self, key: object, answer: Done) -> None:
        """Call `answer` when the change with this key is settled, with its error or None."""
        self._changes[key].answers.append(answer)

    def bring(self, key: object) -> None:
        """Bring all changes that wait to the disk; `commit` settles them. OSError: of the change with
        this key.
        """
        self._bring()
        change = self._changes.get(key)
        if change is not None and change.error is not None:
            raise change.error

    def commit(self) -> None:
        """Bring all changes that wait to the disk, settle them, and call their answers."""
        if not self._changes:
            return
        self._bring()
        changes, self._changes = list(self._changes.values()), {}
        for change in changes:
            change.error = change.settle(change.error)
        for change in changes:
            for answer in change.answers:
                answer(change.error)

    def _bring(self) -> None:
        changes = [each for each in self._changes.values() if not each.done]
        self._remove([each for each in changes if each.unlink is not None])
        for durable in (True, False):
            self._write(
                [each for each in changes if each.unlink is None and each.durable == durable],
                durable,
            )
        for change in changes:
            change.done = True

    def _write(self, changes: list[_Change], durable: bool) -> None:
        groups = [(each.paths, each.data, each.parent) for each in changes]
        errors = self._disk.write_groups(groups, durable)
        for change, error in zip(changes, errors, strict=True):
            change.error = error

    def _remove(self, changes: list[_Change]) -> None:
        folders: dict[str, list[_Change]] = {}
        for change in changes:
            assert change.unlink is not None
            try:
                change.unlink()
            except OSError as error:
                change.error = error
            folders.setdefault(change.folder, []).append(change)
        for folder, inside in folders.items():
            try:
                if self._disk.exists(folder):
                    self._disk.sync_dir(folder)
            except OSError as error:
                for change in inside:
                    change.error = change.error or error

    def _add(self, key: object, change: _Change) -> None:
        if len(self._changes) >= CHANGES_MAX or key in self._changes:
            self.commit()
        self._changes[key] = change
        self._job.before_deliveries()

    def _end_of_turn(self) -> bool:
        if self._changes and self.more():
            return True
        self.commit()
        return False
