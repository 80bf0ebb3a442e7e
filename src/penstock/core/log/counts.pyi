"""Counts of a log that are made from its index: for compiled callers only, see counts.pxd."""
