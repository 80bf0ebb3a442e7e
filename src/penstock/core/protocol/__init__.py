"""The NATS protocol: operations, headers, subjects, permissions. Knows nothing of connections or streams."""
