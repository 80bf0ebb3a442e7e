"""Counting a log from its index: for compiled callers only, see counts.pxd."""
