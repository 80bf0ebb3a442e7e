"""``penstock kv``: buckets, their keys, and both as JSON."""
