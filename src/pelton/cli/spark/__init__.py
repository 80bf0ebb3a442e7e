"""``pelton spark``, ``tables`` and ``pipeline``."""
