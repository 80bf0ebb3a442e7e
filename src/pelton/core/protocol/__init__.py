"""The NATS protocol: operations, headers, subjects, permissions. Does not depend on connections or streams."""
