"""How far a log is written and synced: for compiled callers, see watermarks.pxd."""

class Watermarks:
    written_seq: int
    synced_seq: int
