"""``pelton kv``: buckets, their keys, and both as JSON."""
