"""The lock of a store folder also goes where nothing can be written."""

import errno
import os
from pathlib import Path

import pytest

from pelton.core.log.store_lock import FolderInUse, FolderLock, owner_of


def test_a_lock_says_who_has_it(tmp_path: Path) -> None:
    lock = FolderLock(str(tmp_path), "hub")
    with pytest.raises(FolderInUse) as refused:
        FolderLock(str(tmp_path))
    assert refused.value.domain == "hub"
    assert owner_of(str(tmp_path)) == os.getpid()
    lock.close()
    FolderLock(str(tmp_path)).close()
    assert owner_of(str(tmp_path)) is None


def test_a_lock_on_a_full_disk_is_held_by_nobody_known(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    FolderLock(str(tmp_path)).close()

    def full(handle: int, data: bytes, offset: int) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "pwrite", full)
    lock = FolderLock(str(tmp_path))
    assert owner_of(str(tmp_path)) == 0
    with pytest.raises(FolderInUse):
        FolderLock(str(tmp_path))
    lock.close()
