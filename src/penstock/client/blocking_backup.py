"""Backups of streams under their old name; see ``blocking/backup.py``."""

from .blocking.backup import Backup, BackupFailed, restore

__all__ = ["Backup", "BackupFailed", "restore"]
