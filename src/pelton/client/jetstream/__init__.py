"""JetStream over a session: streams, publishing, pulling, direct gets, schedules and counters."""
