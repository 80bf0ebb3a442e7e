"""The end of the newest segment, when a log is opened: for compiled callers only, see tail_recovery.pxd."""
