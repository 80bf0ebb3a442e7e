"""Reading in bulk is for blocking code only: ``client/sync/columns.py`` has its methods."""

from __future__ import annotations

from .management import Management


class ColumnReading(Management):
    """Adds nothing in asyncio; a part of ``JetStream``."""
