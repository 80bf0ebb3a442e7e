"""The saved states of a stream's consumers: two base files, written in turn, and a journal of
changes.

    states.0, .1      8 bytes   "PSSTATE2"
                      4 bytes   CRC32C of what follows, little endian
                      the rest  MessagePack [number, [[name, created, state], ...]]
    acks.<number>     records since then, in the format of core/consumer/ack_journal

A base holds every change up to the journal file of its number; reading starts from the newer base
that is sound and applies the later journal files in order. Checksum repair
(core/log/checksum_repair) corrects one flipped bit. A record with more damage is ignored; a torn
record ends its file. The key of a state is the name and the creation time of its consumer, so that
a new consumer never gets the state of an older consumer with the same name. core/consumer/snapshot
has the format of a state.

Reading returns one `SavedState` per consumer: its state as bytes and, when records are missing in
the middle, the ranges of sequences that may have been delivered; the caller counts those as
pending.
"""

import struct
from collections.abc import Callable, Iterable, Iterator

import msgspec

from pelton.core.base.buffer import crc32c_of
from pelton.core.base.disk import Disk
from pelton.core.consumer.snapshot import SPENT, pack, unpack
from pelton.core.log.checksum_repair import flipped_bit_of
from pelton.engine.files.metadata_files import STATES, MetadataFiles
from pelton.vault import Aead, StreamCipher, VaultError

STATE_MAGIC = b"PSSTATE2"
_HEAD_BYTES = len(STATE_MAGIC) + 4
_JOURNAL_MAGIC = b"PSACKS1\n"
_SEALED_MAGIC = b"PSACKSE\n"
_JOURNAL_HEAD_BYTES = 16
_SEALED_HEAD_BYTES = 48
_RECORD = struct.Struct("<IIHHIQ")
_ACKS = struct.Struct("<8QII")
_MESSAGE = struct.Struct("<3Q")
_STATE_KIND, _ACKS_KIND = 1, 2
_WAITING = 1
_Row = tuple[bytes, int, bytes]
_File = tuple[int, list[_Row]]


class SavedState(msgspec.Struct):
    """The saved state of one consumer, as far as the files have it."""

    state: bytes | None = None  # the last whole state; None after a change
    numbers: list[int] = msgspec.field(default_factory=lambda: [0] * 7)
    pending: dict[int, tuple[int, int, int, int, int]] = msgspec.field(default_factory=dict)
    # entries with state SPENT
    rest: list[tuple[int, int, int, int, int]] = msgspec.field(default_factory=list)
    starts: list[int] = msgspec.field(default_factory=list)
    gaps: list[tuple[int, int]] = msgspec.field(default_factory=list)  # from, to (excluded)
    acked: set[int] = msgspec.field(default_factory=set)  # sequences that the journal has acks of

    def take(self, state: bytes) -> None:
        """Replace the state by a whole one. ValueError: the bytes are no state.

        After a reset, acks from before it count no more.
        """
        numbers, entries, starts = unpack(state)
        self.state = state
        self.numbers = list(numbers)
        self.pending = {entry[0]: entry for entry in entries if entry[4] != SPENT}
        self.rest = [entry for entry in entries if entry[4] == SPENT]
        self.starts = starts
        self.gaps = []
        self.acked = set()

    def apply(self, start_seq: int, body: bytes) -> None:
        """Apply a journal record: acks, and the deliveries since the record before.

        struct.error: the record is too short.
        """
        before, *numbers, fresh, count = _ACKS.unpack_from(body)
        delivered, passed, floor_seq = numbers[0], numbers[1], numbers[5]
        at = _ACKS.size
        if delivered < self.numbers[0] or passed < self.numbers[1]:
            self._begin_again()
            if before:
                self.gaps.append((floor_seq + 1, passed + 1))
        elif before > self.numbers[0]:
            first = self.numbers[2] or start_seq  # 0: there is no state before this record
            self.gaps += [(seq, seq + 1) for seq in self.starts if seq < first]
            self.gaps.append((first, passed + 1))  # nothing behind `passed` was delivered
        for _ in range(fresh):
            seq, cseq, since_ns = _MESSAGE.unpack_from(body, at)
            self.pending.setdefault(seq, (seq, cseq, since_ns, 1, _WAITING))
            at += _MESSAGE.size
        acked = struct.unpack_from(f"<{count}Q", body, at)
        self.acked.update(acked)
        for seq in acked:
            self.pending.pop(seq, None)
        self.numbers = numbers
        # The journal writes such a record only when no start is left, and no message that reached
        # max_deliver.
        self.starts, self.rest = [], []
        self.pending = {
            seq: entry for seq, entry in self.pending.items() if floor_seq < seq <= passed
        }
        self.state = None

    def _begin_again(self) -> None:
        """Forget what was delivered: the consumer was reset, and the record of that is missing."""
        self.pending, self.rest, self.gaps, self.acked = {}, [], [], set()

    def forget_above(self, last: int) -> bool:
        """Remove everything above the last sequence of the stream: those messages were lost, and
        their sequences will be used again. Return whether anything was removed.
        """
        delivered, passed, next_seq, delivered_ns, floor_cseq, floor_seq, acked_ns = self.numbers
        upto = (min(passed, last), min(next_seq, last + 1), min(floor_seq, last))
        if next_seq > last + 1 and not self.starts:
            # Messages that the consumer passed without a delivery had been removed. Those removals
            # may be lost too.
            upto = (upto[0], upto[0] + 1, upto[2])
        known = [*self.pending, *self.starts, *self.acked, *(entry[0] for entry in self.rest)]
        if upto == (passed, next_seq, floor_seq) and max(known, default=0) <= last:
            return False
        self.numbers = [delivered, *upto[:2], delivered_ns, floor_cseq, upto[2], acked_ns]
        self.pending = {seq: entry for seq, entry in self.pending.items() if seq <= last}
        self.rest = [entry for entry in self.rest if entry[0] <= last]
        self.starts = [seq for seq in self.starts if seq <= last]
        self.acked = {seq for seq in self.acked if seq <= last}
        self.state = None
        return True

    def look_again(self) -> None:
        """Set the position behind the last delivery, or to where the consumer began.

        The messages that it passed without a delivery had been removed, or do not match its filters.
        After a power cut a removal that was not synced is lost, and its message is there again.
        """
        next_seq = self.numbers[1] + 1
        if next_seq < self.numbers[2] and not self.starts:
            self.numbers[2] = next_seq
            self.state = None

    def packed(self, more: Iterable[int] = ()) -> bytes:
        """Return the state as bytes. `more`: sequences that count as delivered and unacknowledged."""
        if self.state is not None:
            return self.state
        for seq in more:
            if seq not in self.acked and seq > self.numbers[5]:
                self.pending.setdefault(seq, (seq, 1, 0, 1, _WAITING))
        waiting = [self.pending[seq] for seq in sorted(self.pending)]
        if waiting and waiting[0][0] <= self.numbers[5]:
            self.numbers[5] = waiting[0][0] - 1
            self.numbers[4] = min(self.numbers[4], max(waiting[0][1] - 1, 0))
        return pack(tuple(self.numbers), waiting + self.rest, self.starts)


class ConsumerStates:
    """The states of one stream's consumers as they were last saved, in memory and in a folder."""

    def __init__(self, disk: Disk, folder: str, small: MetadataFiles | None = None) -> None:
        """Read and write nothing before `load`. `small` has the stream's keys; None: the stream has
        none.
        """
        self._disk = disk
        self.folder = folder
        self._small = small or MetadataFiles(disk, folder)
        self.outdated = (
            False  # some files lack the right encryption: the next two bases replace them
        )
        self._states: dict[str, tuple[int, bytes]] = {}
        self.found: dict[tuple[str, int], SavedState] = {}
        self.oldest = 0  # the lowest number of a journal file on the disk
        self.number = 0  # the highest number of a journal file, or that of the base
        self.journal_bytes = 0
        self.base_bytes = 0
        self.base_slot = 0
        self.base_upto = 0  # the journal file that the base includes
        self.durable_upto = -1  # ... if the base is synced and no later change is in the journal
        self.saved_bytes = 0  # bytes of the states in the last save
        self.newest_ns = 0  # the newest creation time of a consumer with a saved state
        self.error: OSError | None = None  # the error of the last write

    def load(self, start_seqs: dict[tuple[str, int], int]) -> list[str]:
        """Read base and journal into `found`; return what is wrong with them, in words.

        `start_seqs`: the first sequence of each consumer, by name and creation time.
        """
        problems: list[str] = []
        rows: list[_Row] = []
        for slot in (0, 1):
            path = f"{self.folder}/states.{slot}"
            before = len(problems)
            try:
                if not self._disk.exists(path):
                    continue
                data = self._disk.read_file(path)
                self.outdated = self.outdated or not self._small.current(data)
                upto, found = _unpack(self._plain(data), problems.append)
            except (OSError, ValueError, VaultError) as error:
                problems.append(f"{path}: {error}")
                continue
            problems[before:] = [f"{path}: {what}" for what in problems[before:]]
            if upto >= self.base_upto:
                self.base_upto, self.base_slot, self.base_bytes = upto, slot, len(data)
                rows = found
        created = [created_ns for _, created_ns in start_seqs]
        for name, created_ns, state in rows:
            created.append(created_ns)
            self._take(name, created_ns, state)
        self.newest_ns = max(created, default=0)
        names = self._disk.list_dir(self.folder)
        numbers = sorted(
            int(name[5:]) for name in names if name.startswith("acks.") and name[5:].isdigit()
        )
        self.number = max([self.base_upto, *numbers])
        for number in numbers:
            if number <= self.base_upto:
                continue
            path = f"{self.folder}/acks.{number}"
            try:
                data = self._disk.read_file(path)
                self.journal_bytes += len(data)
                self.outdated = self.outdated or journal_key(data) != self._number
                problems += [f"{path}: {what}" for what in self._replay(data, start_seqs)]
            except (OSError, ValueError) as error:
                problems.append(f"{path}: {error}")
        self.oldest = numbers[0] if numbers else 0
        return problems

    @property
    def _number(self) -> int:
        return 0 if self._small.cipher is None else self._small.cipher.number

    def _plain(self, data: bytes) -> bytes:
        cipher = self._small.cipher
        return data if cipher is None else cipher.open(STATES, data)

    def _take(self, name: bytes, created_ns: int, state: bytes) -> None:
        key = name.decode("utf-8", "surrogateescape"), created_ns
        found = self.found.setdefault(key, SavedState())
        try:
            found.take(state)
        except ValueError:
            found.state = state  # the restore reports the error

    def _replay(self, data: bytes, start_seqs: dict[tuple[str, int], int]) -> list[str]:
        keys = [(name.encode("utf-8", "surrogateescape"), created) for name, created in start_seqs]
        wrong: list[str] = []
        for kind, name, created_ns, body in _records(data, keys, wrong, self._small.cipher):
            key = name.decode("utf-8", "surrogateescape"), created_ns
            self.newest_ns = max(self.newest_ns, created_ns)
            if key not in start_seqs:
                continue
            if kind == _STATE_KIND:
                self._take(name, created_ns, body)
            elif kind == _ACKS_KIND:
                self.found.setdefault(key, SavedState()).apply(start_seqs[key], body)
        return wrong

    def put(self, name: str, created_ns: int, state: bytes) -> None:
        """Note the saved state of a consumer."""
        self._states[name] = (created_ns, state)

    def drop(self, name: str) -> None:
        """Remove a consumer."""
        self._states.pop(name, None)

    def base(self, number: int) -> bytes:
        """Return all states as a base that includes the journal up to the file of this number."""
        rows = [
            (name.encode("utf-8", "surrogateescape"), created_ns, state)
            for name, (created_ns, state) in self._states.items()
        ]
        return self._small.sealed(STATES, _pack(number, rows))

    def begin(self) -> None:
        """Write the noted states as both bases of a folder without a journal, durably. OSError."""
        paths = [f"{self.folder}/states.{slot}" for slot in (0, 1)]
        self._disk.write_files_atomic(paths, self.base(0))


def _records(
    data: bytes, keys: list[tuple[bytes, int]], wrong: list[str], cipher: StreamCipher | None
) -> Iterator[tuple[int, bytes, int, bytes]]:
    """Yield (kind, name, created, body) of the records of a journal file.

    Behind a damaged record the search for the next record uses the consumers in `keys`. Damage is
    added to `wrong`. ValueError: the file is no journal.
    """
    if len(data) < _JOURNAL_HEAD_BYTES:
        return  # torn when it was created
    salt = _salt(data, wrong)
    aead = None
    at = _JOURNAL_HEAD_BYTES
    if is_sealed_journal(data):
        aead = _journal_aead(data, salt, cipher, wrong)
        at = _SEALED_HEAD_BYTES
    while at + _RECORD.size <= len(data):
        end = _good_end(data, at, salt)
        if not end:
            end, data = _next_good(data, at, salt, keys, wrong)
            if _good_end(data, at, salt) != end:
                at = end
                continue
        _, _, kind, name_bytes, _, created_ns = _RECORD.unpack_from(data, at)
        name_end = at + _RECORD.size + name_bytes
        body = data[name_end:end]
        if aead is not None and cipher is not None:
            opened = _opened(aead, cipher, data[at:name_end], body)
            if opened is None:
                wrong.append(f"the record at byte {at} was altered or moved")
                at = end
                continue
            body = opened
        yield kind, data[at + _RECORD.size : name_end], created_ns, body
        at = end


def _mended_head(head: bytes, check: int, wrong: list[str]) -> bytes:
    """Return a part of a journal's head after checksum repair. ValueError: it has more damage."""
    if check == crc32c_of(head):
        return head
    bit = flipped_bit_of(head, check)
    if bit < 0:
        raise ValueError("not an ack journal")
    wrong.append("checksum repair corrected one flipped bit in the head")
    return _flipped(head, bit) if bit < 8 * len(head) else head


def _salt(data: bytes, wrong: list[str]) -> int:
    (check,) = struct.unpack_from("<I", data, 12)
    head = _mended_head(data[:12], check, wrong)
    if not head.startswith((_JOURNAL_MAGIC, _SEALED_MAGIC)):
        raise ValueError("not an ack journal")
    salt: int = struct.unpack_from("<I", head, len(_JOURNAL_MAGIC))[0]
    return salt


def is_sealed_journal(data: bytes) -> bool:
    """Return whether a journal file is encrypted. One flipped bit in the magic does not change the
    result: the two magics differ in four bits of this byte.
    """
    return (data[6] ^ _SEALED_MAGIC[6]).bit_count() <= 1


def journal_key(data: bytes) -> int:
    """Return the number of the data key that a journal file is encrypted with; 0: none."""
    if len(data) < _SEALED_HEAD_BYTES or not is_sealed_journal(data):
        return 0
    return int.from_bytes(data[_JOURNAL_HEAD_BYTES : _JOURNAL_HEAD_BYTES + 4], "little")


def _journal_aead(data: bytes, salt: int, cipher: StreamCipher | None, wrong: list[str]) -> Aead:
    head = data[_JOURNAL_HEAD_BYTES : _SEALED_HEAD_BYTES - 4]
    check = int.from_bytes(data[_SEALED_HEAD_BYTES - 4 : _SEALED_HEAD_BYTES], "little")
    if len(head) < _SEALED_HEAD_BYTES - 4 - _JOURNAL_HEAD_BYTES:
        raise ValueError("the file was cut short while it was created")
    head = _mended_head(head, check, wrong)
    try:
        if cipher is not None:
            number = int.from_bytes(head[:4], "little")
            return cipher.aead(number, b"journal " + salt.to_bytes(4, "little") + head)
    except KeyError:
        pass
    raise ValueError("the file is encrypted, and there is no key for it")


def _opened(aead: Aead, cipher: StreamCipher, bound: bytes, body: bytes) -> bytes | None:
    """Return the decrypted body of a record; None: the body does not belong to this record or key."""
    try:
        nonce = bytes(4) + body[:4] + bytes(4)
        return aead.decrypt(nonce, body[4:], bound[:4] + bound[8:])
    except (cipher.invalid, ValueError):
        return None


def _good_end(data: bytes, at: int, salt: int) -> int:
    """Return the end of the good record at this offset; 0: there is none."""
    if at + _RECORD.size > len(data):
        return 0
    length, check, _, name_bytes, _, _ = _RECORD.unpack_from(data, at)
    end = at + length
    if length < _RECORD.size + name_bytes or end > len(data):
        return 0
    return end if check == crc32c_of(data[at + 8 : end], salt) else 0


def _next_good(
    data: bytes, at: int, salt: int, keys: list[tuple[bytes, int]], wrong: list[str]
) -> tuple[int, bytes]:
    """Return the offset of the next good record behind a damaged one, and the data. The damaged
    record is corrected when the damage is one flipped bit.
    """
    end = min((place for key in keys if (place := _find(data, at + 1, salt, key))), default=0)
    torn = not end
    end = end or len(data)
    length, check = struct.unpack_from("<II", data, at)
    mended = bytearray(data)
    if length != end - at:
        mended[at : at + 4] = (end - at).to_bytes(4, "little")
        one = (length ^ (end - at)).bit_count() == 1
        if one and _good_end(bytes(mended), at, salt) == end:
            wrong.append(f"checksum repair corrected one flipped bit in the record at byte {at}")
            return end, bytes(mended)
    elif (bit := flipped_bit_of(data[at + 8 : end], check, salt)) >= 0:
        bit -= 8 * (end - at - 8)
        place = at + 4 if bit >= 0 else end
        mended[place + bit // 8] ^= 1 << bit % 8
        wrong.append(f"checksum repair corrected one flipped bit in the record at byte {at}")
        return end, bytes(mended)
    if not torn:
        wrong.append(f"{end - at} bytes from byte {at} on are damaged")
    return end, data


def _find(data: bytes, at: int, salt: int, key: tuple[bytes, int]) -> int:
    """Return the offset of a consumer's first good record from `at` on; 0: none."""
    name, created_ns = key
    pattern = struct.pack("<HIQ", len(name), 0, created_ns) + name
    place = data.find(pattern, at + 10)
    while place >= 0:
        if _good_end(data, place - 10, salt):
            return place - 10
        place = data.find(pattern, place + 1)
    return 0


def _flipped(data: bytes, bit: int) -> bytes:
    copy = bytearray(data)
    copy[bit // 8] ^= 1 << bit % 8
    return bytes(copy)


def _pack(number: int, rows: list[_Row]) -> bytes:
    body = msgspec.msgpack.encode((number, rows))
    return STATE_MAGIC + crc32c_of(body).to_bytes(4, "little") + body


def _unpack(data: bytes, tell: Callable[[str], None]) -> _File:
    body = data[_HEAD_BYTES:]
    check = int.from_bytes(data[len(STATE_MAGIC) : _HEAD_BYTES], "little")
    if not data.startswith(STATE_MAGIC):
        wrong = int.from_bytes(data[: len(STATE_MAGIC)], "big") ^ int.from_bytes(STATE_MAGIC, "big")
        if wrong.bit_count() != 1 or check != crc32c_of(body):
            raise ValueError("not a file of consumer states")
        tell("checksum repair corrected one flipped bit")
    if check != crc32c_of(body):
        bit = flipped_bit_of(body, check)
        if bit < 0:
            raise ValueError("checksum does not match")
        tell("checksum repair corrected one flipped bit")
        body = _flipped(body, bit) if bit < 8 * len(body) else body
    try:
        found: _File = msgspec.msgpack.decode(body, type=_File)
    except msgspec.DecodeError as error:
        raise ValueError(str(error)) from None
    return found
