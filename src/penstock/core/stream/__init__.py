"""A stream: what it takes, when a PubAck goes out, what it removes, and what other streams copy from it."""
