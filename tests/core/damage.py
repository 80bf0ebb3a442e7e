"""Small stores in memory, what can happen to their files, and what must hold after each of it.

A store is a log's folder as bytes by file name. A `Damage` names the file, the bytes that it hits
and what the file is afterwards. `judge` opens the damaged store twice and says in words what is
wrong; an empty list: nothing.
"""

from __future__ import annotations

import errno
import itertools
from collections.abc import Iterator
from dataclasses import dataclass, field

from pelton.core.base.disk import PyDisk
from pelton.core.log import maintenance, queries, recovery
from pelton.core.log.log import Log, StoredMessage
from pelton.core.log.segment_reader import segment_head
from pelton.core.stream.atomic_batch import store_whole
from pelton.core.stream.draft import draft
from tests.core.streams import Site

SEGMENT = 4096
HEAD = 32
MESSAGE, REMOVE, SKIP = 1, 2, 3


class Shelf:
    """A disk in memory that can be copied, and counts what is asked of it."""

    def __init__(self, files: dict[str, bytes] | None = None) -> None:
        self.files = {name: bytearray(data) for name, data in (files or {}).items()}
        self.handles: dict[int, tuple[str, bytearray]] = {}
        self.numbers = itertools.count(3)
        self.calls: dict[str, int] = {}
        self.bytes_read = 0

    def note(self, verb: str) -> None:
        self.calls[verb] = self.calls.get(verb, 0) + 1

    def open(self, path: str, create: bool) -> int:
        self.note("open")
        if path not in self.files:
            if not create:
                raise FileNotFoundError(errno.ENOENT, "no such file", path)
            self.files[path] = bytearray()
        number = next(self.numbers)
        self.handles[number] = (path, self.files[path])
        return number

    def close(self, handle: int) -> None:
        del self.handles[handle]

    def write_at(self, handle: int, data: bytes, offset: int) -> None:
        self.note("write")
        held = self.handles[handle][1]
        held.extend(bytes(max(offset - len(held), 0)))
        held[offset : offset + len(data)] = data

    def read_at(self, handle: int, n: int, offset: int) -> bytes:
        self.note("read")
        data = bytes(self.handles[handle][1][offset : offset + n])
        self.bytes_read += len(data)
        return data

    def sync(self, handle: int) -> None:
        self.note("sync")

    def size(self, handle: int) -> int:
        return len(self.handles[handle][1])

    def truncate(self, handle: int, size: int) -> None:
        held = self.handles[handle][1]
        del held[size:]
        held.extend(bytes(size - len(held)))

    def make_dir(self, path: str) -> None:
        pass

    def list_dir(self, path: str) -> list[str]:
        self.note("list")
        return [name[len(path) + 1 :] for name in self.files if name.rpartition("/")[0] == path]

    def exists(self, path: str) -> bool:
        return path in self.files or any(name.startswith(f"{path}/") for name in self.files)

    def rename(self, old: str, new: str) -> None:
        self.files[new] = self.files.pop(old)

    def unlink(self, path: str) -> None:
        self.files.pop(path, None)

    def remove_tree(self, path: str) -> None:
        raise AssertionError("recovery removes no folder")

    def sync_dir(self, path: str) -> None:
        self.note("sync_dir")

    def taken(self) -> dict[str, bytes]:
        return {name: bytes(data) for name, data in self.files.items()}


@dataclass
class Store:
    """A folder before anything happens to it."""

    name: str
    files: dict[str, bytes]
    older: dict[str, bytes]  # the same folder some time before
    whole: dict[int, StoredMessage] = field(default_factory=dict)
    last_seq: int = 0

    def __post_init__(self) -> None:
        log = open_log(Shelf(self.files))
        self.whole = everything(log)
        self.last_seq = log.last_seq
        assert log.lost == []


@dataclass
class Damage:
    """What happens to one file."""

    what: str
    path: str
    data: bytes | None  # the file afterwards; None: it is gone
    hit: tuple[int, int]  # the bytes of the former file that are not there any more
    bits: int = 0  # how many bits differ; 0: more than a few

    def done_to(self, files: dict[str, bytes]) -> dict[str, bytes]:
        after = dict(files)
        if self.data is None:
            del after[self.path]
        else:
            after[self.path] = self.data
        return after


def open_log(shelf: Shelf) -> Log:
    return recovery.open_log("log", PyDisk(shelf), segment_bytes=SEGMENT)


def everything(log: Log) -> dict[int, StoredMessage]:
    found = {}
    message = queries.next_of(log, ">", 1)
    while message is not None:
        found[message.seq] = message
        message = queries.next_of(log, ">", message.seq + 1)
    assert len(found) == log.msgs, (len(found), log.msgs)
    return found


# --- stores --------------------------------------------------------------------------------------


def build(kind: str) -> Store:
    """`closed`: in order; `killed`: not; `bare`: killed, without index files; `packed` and
    `packed-bare`: with compressed segments; `groups`: killed, ends with a group of messages;
    `begun` and `begun-bare`: the newest segment has only its head, as on a disk that was full.
    """
    shelf = Shelf()
    log = open_log(shelf)
    packed = kind.startswith("packed")
    log.compress = packed
    serial = itertools.count()

    def add(count: int) -> None:
        for i in itertools.islice(serial, count):
            body = b"%d:" % i + (b"p" * (i * 31 % 90) if not packed else b"word " * (i * 7 % 30))
            log.add(1000 + i, f"s.{i % 5}", body, b"H" * (i % 2 * 12))
        log.flush()

    add(50)
    for seq in (3, 4, 5, 30):
        maintenance.delete(log, seq)
    log.flush()
    maintenance.delete(log, 8, erase=True)
    add(20)
    log.skip(log.last_seq + 8)
    add(15)
    older = shelf.taken()
    queries.purge_subjects(log, "s.3", keep=4)
    log.flush()
    maintenance.purge(log, below=7)
    add(25)
    if packed:
        while maintenance.maintain(log):
            log.flush()
    if kind == "groups":
        site = Site(log=log)
        for size in (3, 2):
            drafts = [draft("s.1", b"group %d" % k * 3, b"H") for k in range(size)]
            store_whole(site.stream.path, drafts)
            site.reactor.settle()
            log.flush()
    else:
        maintenance.delete(log, log.last_seq - 3)
        add(4)
        log.skip(log.last_seq + 4)
        maintenance.delete(log, log.last_seq - 6)
    log.flush()
    if kind == "closed" or kind == "packed":
        maintenance.close(log)
    files = shelf.taken()
    if kind.startswith("begun"):
        begin_segment(files)
    if kind.endswith("bare"):
        files = {name: data for name, data in files.items() if not name.endswith(".idx")}
    return Store(kind, files, older)


KINDS = ("closed", "killed", "bare", "packed", "packed-bare", "groups", "begun", "begun-bare")


def begin_segment(files: dict[str, bytes]) -> None:
    """Add the next segment, without a record."""
    log = open_log(Shelf(files))
    files[f"log/{log.last_seq + 1:020d}.seg"] = segment_head(log.last_seq + 1, 7)


# --- what a segment's bytes are ------------------------------------------------------------------


@dataclass
class Piece:
    """A part of a segment's file: its head, a record, or a compressed block."""

    start: int
    end: int
    kind: int  # 0: the head
    seqs: frozenset[int] = frozenset()  # the messages in it, or those that it says are removed


def pieces(data: bytes) -> list[Piece]:
    """Of an undamaged segment file."""
    found = [Piece(0, HEAD, 0)]
    version = int.from_bytes(data[8:12], "little")
    if version == 2:
        at = HEAD
        end = len(data) - 24
        count = int.from_bytes(data[end + 8 : end + 12], "little")
        table = end - 8 * count
        while at < table:
            length = int.from_bytes(data[at : at + 4], "little") & 0x7FFFFFFF
            found.append(Piece(at, at + 4 + length, MESSAGE))
            at += 4 + length
        found.append(Piece(table, len(data), -1))
        return found
    at = HEAD
    while at < len(data):
        length = int.from_bytes(data[at : at + 4], "little")
        kind = data[at + 4]
        seqs = frozenset({int.from_bytes(data[at + 16 : at + 24], "little")})
        if kind == SKIP:
            seqs = frozenset(
                range(int.from_bytes(data[at + 24 : at + 32], "little"), max(seqs) + 1)
            )
        if kind == REMOVE:
            body = data[at + 32 : at + length - 4]
            pairs = [int.from_bytes(body[k : k + 8], "little") for k in range(0, len(body), 8)]
            seqs = frozenset(
                seq
                for first, count in zip(pairs[::2], pairs[1::2], strict=True)
                for seq in range(first, first + count)
            )
        found.append(Piece(at, at + length, kind, seqs))
        at += length
    return found


# --- damages -------------------------------------------------------------------------------------


def flips(store: Store, stride: int = 1) -> Iterator[Damage]:
    """One bit of each byte; all of them in the heads of segments and of index files."""
    bit = 0
    for path, data in store.files.items():
        head = 112 if path.endswith(".idx") else HEAD
        for at in range(len(data)):
            bit = (bit * 5 + 3 + at // 7) % 8
            bits = range(8) if at < head else (bit,)
            for each in bits:
                if stride > 1 and (at * 8 + each) % stride:
                    continue
                changed = bytearray(data)
                changed[at] ^= 1 << each
                what = f"bit {each} of byte {at}"
                yield Damage(what, path, bytes(changed), (at, at + 1), 1)


def cuts(store: Store, stride: int = 1) -> Iterator[Damage]:
    """Each length that a file can be cut to."""
    for path, data in store.files.items():
        for size in range(0, len(data), stride):
            yield Damage(f"cut to {size}", path, data[:size], (size, len(data)))


def holes(store: Store, stride: int = 64) -> Iterator[Damage]:
    """512 bytes of a file are zeros."""
    for path, data in store.files.items():
        for at in range(0, len(data), stride):
            end = min(at + 512, len(data))
            changed = data[:at] + bytes(end - at) + data[end:]
            yield Damage(f"zeros at {at}", path, changed, (at, end))


def losses(store: Store) -> Iterator[Damage]:
    """A file is gone."""
    for path, data in store.files.items():
        yield Damage("gone", path, None, (0, len(data)))


def returns(store: Store) -> Iterator[Damage]:
    """A file is again what it was some time before."""
    for path, data in store.older.items():
        if path in store.files and store.files[path] != data:
            now = store.files[path]
            same = next((k for k, (a, b) in enumerate(zip(now, data, strict=False)) if a != b), 0)
            yield Damage("of old", path, data, (min(same, len(data)), len(now)))


def foreign(store: Store) -> Iterator[Damage]:
    """A file is there under another name too, or there is one that is none of ours."""
    for path, data in list(store.files.items()):
        stem, suffix = path.rsplit("/", 1)[1].split(".")
        for number in (int(stem) + 1, int(stem) + 7, store.last_seq + 50, 2**63 + 5):
            name = f"log/{number:020d}.{suffix}"
            if name not in store.files:
                yield Damage("foreign", name, data, (0, 0))
    for name in ("log/readme", f"log/{0:020d}.seg", "log/12.seg", f"log/{9:020d}.seg.tmp"):
        yield Damage("foreign", name, b"something", (0, 0))


# --- the verdict ---------------------------------------------------------------------------------


def judge(store: Store, damage: Damage) -> list[str]:
    """What is wrong after this damage."""
    wrong: list[str] = []
    may_go, may_return, unsure = allowed(store, damage)
    blind = end_unknown(store, damage)
    before = damage.done_to(store.files)
    shelf = Shelf(before)
    try:
        log = open_log(shelf)
        found = everything(log)
        for seq in store.whole:
            log.get(seq)
        found = everything(log)
    except Exception as error:  # whatever it is, it is the verdict
        return [f"does not open: {error!r}"]
    for seq, message in found.items():
        if seq in store.whole and message != store.whole[seq]:
            wrong.append(f"message {seq} is another one")
    if back := set(found) - set(store.whole) - may_return:
        wrong.append(f"removed messages are back: {sorted(back)}")
    missing = set(store.whole) - set(found)
    if gone := missing - may_go:
        wrong.append(f"lost although untouched: {sorted(gone)}")
    lost = lost_of(log)
    if (untold := missing - lost) and not blind:
        wrong.append(f"lost and not told: {sorted(untold)}; lost is {log.lost}")
    if lying := lost & set(found):
        wrong.append(f"told as lost and there: {sorted(lying)}")
    if lying := lost - missing - unsure:
        wrong.append(f"told as lost, never there or removed: {sorted(lying)}; {log.lost}")
    if log.last_seq < store.last_seq and not blind:
        wrong.append(f"the last sequence was {store.last_seq}, is {log.last_seq}")
    wrong += kept(before, shelf.taken(), damage)
    del log
    again = open_log(Shelf(shelf.taken()))
    second = everything(again)
    for seq in store.whole:
        again.get(seq)
    second = everything(again)
    if second != found:
        odd = sorted(set(second) ^ set(found))
        wrong.append(f"opened again it holds something else: {odd}")
    if lost_of(again) != lost:
        wrong.append(f"opened again it tells {again.lost}, before {sorted(lost)}")
    return wrong


def lost_of(log: Log) -> set[int]:
    return {seq for first, count, _ in log.lost for seq in range(first, first + count)}


def allowed(store: Store, damage: Damage) -> tuple[set[int], set[int], set[int]]:
    """The messages that may be missing, those that may be back, and the sequences of which nothing
    says any more whether there was a message.
    """
    go: set[int] = set()
    back: set[int] = set()
    if not damage.path.endswith(".seg") or damage.what == "foreign":
        return go, back, set()
    data = store.files[damage.path]
    first = int(damage.path[-24:-4])
    following = [int(name[-24:-4]) for name in store.files if name.endswith(".seg")]
    end = min((n for n in following if n > first), default=store.last_seq + 1)
    mine = {seq for seq in store.whole if first <= seq < end}
    told = damage.path.replace(".seg", ".idx") in store.files
    unsure: set[int] = set()
    low, high = damage.hit
    packed = int.from_bytes(data[8:12], "little") == 2
    broken = []
    for piece in pieces(data):
        if piece.start >= high or piece.end <= low or piece.kind <= 0:
            continue
        if packed and damage.bits != 1:
            go |= mine
            back |= set() if told else all_removed(store)
            unsure |= set() if told else set(range(first, end))
        elif piece.kind == MESSAGE:
            go |= piece.seqs & set(store.whole)
            unsure |= piece.seqs
            broken.append(piece)
        elif damage.bits != 1 and not told:
            unsure |= piece.seqs
            back |= piece.seqs if piece.kind == REMOVE else set()
    if damage.bits != 1 and damage.path == last_segment(store):
        go |= groups_of(data, broken)
        if high == len(data):
            unsure.add(store.last_seq + 1)  # a last head that can't be read counts as a message
    return go, back, unsure


def groups_of(data: bytes, broken: list[Piece]) -> set[int]:
    """The messages of groups that have lost one of theirs."""
    gone: set[int] = set()
    group: list[Piece] = []
    for piece in pieces(data):
        if piece.kind != MESSAGE:
            continue
        if not data[piece.start + 5] & 64:
            group = []
        group.append(piece)
        if any(one in broken for one in group):
            gone |= {seq for one in group for seq in one.seqs}
    return gone


def last_segment(store: Store) -> str:
    return max(name for name in store.files if name.endswith(".seg"))


def end_unknown(store: Store, damage: Damage) -> bool:
    """Whether the end of the last segment is gone and nothing else says what it was."""
    path = last_segment(store)
    if damage.path != path or path.replace(".seg", ".idx") in store.files or damage.bits == 1:
        return False
    return damage.hit[1] > pieces(store.files[path])[-1].start


def all_removed(store: Store) -> set[int]:
    return set(range(1, store.last_seq + 1)) - set(store.whole)


def kept(before: dict[str, bytes], after: dict[str, bytes], damage: Damage) -> list[str]:
    """Whether the bytes of all segments are still somewhere."""
    wrong = []
    for path, data in before.items():
        if not path.endswith(".seg"):
            continue
        now = after.get(path)
        if now is None:
            if not any(d == data for p, d in after.items() if p.startswith(f"{path}.aside")):
                wrong.append(f"{path} was deleted")
            continue
        if len(now) == len(data) and now[HEAD:] == data[HEAD:]:
            # zeros in a head may have been replaced by what belongs there
            data = bytes(b or a for a, b in zip(now[:HEAD], data[:HEAD], strict=True)) + data[HEAD:]
        common = next(
            (k for k, (a, b) in enumerate(zip(data, now, strict=False)) if a != b),
            min(len(data), len(now)),
        )
        rest = data[common:]
        stem = path[: -len(".seg")]
        aside = [d for p, d in after.items() if p.startswith(f"{stem}.") and p != path]
        if rest and not any(each.endswith(rest) for each in aside):
            wrong.append(f"{len(rest)} bytes of {path} are nowhere")
    return wrong
