"""Snapshots and restores of streams, in the formats of nats-server and of Pelton."""
