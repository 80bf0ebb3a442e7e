"""(being written)"""

import os


def is_backup(path: str) -> bool:
    """Whether the folder is one of backups."""
    return os.path.isfile(f"{path}/penstock-backups")
