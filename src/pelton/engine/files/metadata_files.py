"""The small files of a stream's folder, each read and written as a whole, and the stream's keys.

    <stream>/key.0, key.1       the wrapped data keys (pelton.vault): two copies, so that
                                either of them may be damaged
             key.off-<n>        a key file from before the stream was decrypted; it opens `*.torn-*`
                                files that were encrypted when they were kept

All files of a stream with keys are encrypted. A file that an earlier configuration wrote without
encryption, or with an earlier data key, is rewritten when it is read. Names of files and folders
are not encrypted. The module does not know what the files mean.
"""

import contextlib

from pelton.core.base.disk import Disk
from pelton.engine.files.checksummed_files import COPY, BadFileError, DeferWrite
from pelton.vault import StreamCipher, Vault, VaultError, is_sealed

_COPIES = ("key.0", "key.1")
_SMALL_BYTES = 1 << 20
STATES = "consumers/states"
_SEALED_JOURNAL = b"PSACKSE\n"  # core/consumer/ack_journal


class LockedError(BadFileError):
    """A stream is encrypted and cannot be opened with the configured keys."""


class MetadataFiles:
    """The small files of one stream."""

    def __init__(self, disk: Disk, folder: str, vault: Vault | None = None) -> None:
        """Read and write nothing before the first call."""
        self._disk = disk
        self.folder = folder
        self._vault = vault
        self.cipher: StreamCipher | None = None

    # -- keys

    def begin(self) -> None:
        """Create the keys of a new stream, durably."""
        if self._vault is not None and self._vault.encrypts:
            self.cipher = self._vault.new()
            self._write_keys()

    def unlock(self, probe: str, later: DeferWrite | None = None) -> None:
        """Open the keys of an existing stream, and wrap them again when the configured key has
        changed.

        `probe` is a file that every stream has. When the disk refuses a repair of a key file, the
        repair goes to `later`. LockedError: the stream is encrypted and cannot be opened; no file
        was changed. OSError: the stream needs a new data key, and the disk refuses it.
        """
        copies = self._copies()
        if not copies:
            for name in (probe, probe + COPY):
                if self._disk.exists(f"{self.folder}/{name}") and is_sealed(self._raw(name)):
                    raise LockedError("the stream is encrypted, and its key files are missing")
            self.begin()
            return
        if self._vault is None:
            raise LockedError("the stream is encrypted, and no key is configured (jetstream.key)")
        try:
            self.cipher = self._vault.open(copies.values())
        except VaultError as error:
            raise LockedError(f"the stream is encrypted: {error}") from None
        if self.cipher.stale or len(copies) < len(_COPIES):
            try:
                self._write_keys()
            except OSError:
                # no file may use a new data key that is not on the disk
                if self.cipher.begun or later is None:
                    raise
                later(f"{self.folder}/{_COPIES[0]}", self._write_keys)

    def take_keys(self, other: "MetadataFiles") -> None:
        """Use the keys of `other`, whose folder was renamed to this one."""
        self.cipher = other.cipher

    @property
    def decrypting(self) -> bool:
        """Whether the stream has keys and the configuration asks for none."""
        return self.cipher is not None and self.cipher.number == 0

    def drop_keys(self) -> bool:
        """Put the key files aside when no small file needs them; return whether that was done.
        OSError.
        """
        for base in ("", "consumers/"):
            for name in self._disk.list_dir(f"{self.folder}/{base}".rstrip("/")):
                if name.startswith("key.") or name in ("log", "consumers"):
                    continue
                if ".bad-" in name or name.endswith(".tmp"):  # such a file is never read again
                    continue
                if self._needs_keys(f"{self.folder}/{base}{name}"):
                    return False
        # A power cut must not bring back an encrypted file that was removed or replaced.
        for folder in ("log", "consumers"):
            self._disk.sync_dir(f"{self.folder}/{folder}")
        n = 1
        while self._disk.exists(f"{self.folder}/key.off-{n}"):
            n += 1
        self._disk.rename(f"{self.folder}/{_COPIES[0]}", f"{self.folder}/key.off-{n}")
        self._disk.unlink(f"{self.folder}/{_COPIES[1]}")
        self._disk.sync_dir(self.folder)
        self.cipher = None
        return True

    def _needs_keys(self, path: str) -> bool:
        """Return whether a file needs the keys; the read rewrites it without encryption if it can."""
        self.read_file(path)
        data = self._disk.read_file(path)
        if not is_sealed(data) or self.cipher is None:
            return data.startswith(_SEALED_JOURNAL)
        try:
            self.cipher.open(self._role(path), data)
        except VaultError:
            return False
        return True

    def _copies(self) -> dict[str, bytes]:
        present = [name for name in _COPIES if self._disk.exists(f"{self.folder}/{name}")]
        return {name: self._raw(name) for name in present}

    def _write_keys(self) -> None:
        assert self._vault is not None
        assert self.cipher is not None
        data = self._vault.key_file(self.cipher)
        for name in _COPIES:
            self._disk.write_file_atomic(f"{self.folder}/{name}", data)
        self.cipher.stale = False

    # -- files, by path

    def exists(self, path: str) -> bool:
        """Return whether a file of this name exists."""
        return self._disk.exists(path)

    def unlink(self, path: str) -> None:
        """Remove a file. OSError."""
        self._disk.unlink(path)

    def read_file(self, path: str) -> bytes:
        """Return the decrypted content of a file, or its bytes when they cannot be decrypted.
        OSError.
        """
        data = self._disk.read_file(path)
        if self.cipher is None:
            return data
        try:
            plain = self.cipher.open(self._role(path), data)
        except VaultError:
            return data
        if len(data) < _SMALL_BYTES and not self.cipher.current(data):
            with contextlib.suppress(OSError):  # the next opening tries again
                self.write_file_atomic(path, plain)
        return plain

    def write_file_atomic(self, path: str, data: bytes, durable: bool = True) -> None:
        """Replace a file as a whole. OSError."""
        self._disk.write_file_atomic(path, self.sealed(self._role(path), data), durable)

    def write_files_atomic(self, paths: list[str], data: bytes, durable: bool = True) -> None:
        """Replace a file and its copy. OSError."""
        self._disk.write_files_atomic(paths, self.stored(paths[0], data), durable)

    def stored(self, path: str, data: bytes) -> bytes:
        """Return the bytes that the disk gets for a file."""
        return self.sealed(self._role(path), data)

    def sealed(self, role: str, data: bytes) -> bytes:
        """Return the bytes to store for a file; `role` binds them to the file."""
        # sealed bytes in `data` are damaged and stay as they are
        if self.cipher is None or is_sealed(data):
            return data
        return self.cipher.seal(role, data)

    def current(self, data: bytes) -> bool:
        """Return whether the bytes of a file have the encryption that `sealed` uses now."""
        return not is_sealed(data) if self.cipher is None else self.cipher.current(data)

    def _role(self, path: str) -> str:
        """Return the role of a file: its path in the folder. A copy has the role of the original,
        and the two bases of consumer states have the same role.
        """
        name = path.removeprefix(f"{self.folder}/").removesuffix(COPY)
        return STATES if name in (f"{STATES}.0", f"{STATES}.1") else name

    def _raw(self, name: str) -> bytes:
        return self._disk.read_file(f"{self.folder}/{name}")
