"""The bytes of segment files: for compiled callers only, see record.pxd."""
