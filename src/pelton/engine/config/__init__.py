"""Configurations of streams and consumers: defaults, validation, what an update may change."""
