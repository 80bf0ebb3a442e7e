"""Tail recovery: for compiled callers only, see tail_recovery.pxd."""
