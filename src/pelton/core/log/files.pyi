"""How accepted bytes get to the disk; files.pxd has the methods, which only compiled modules call."""

UNSURE: str
