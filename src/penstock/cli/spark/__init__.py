"""``penstock spark``, ``tables`` and ``pipeline``."""
