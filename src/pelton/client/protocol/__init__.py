"""One connection in the NATS protocol, without I/O: its options, its handshakes, and its state machine."""
