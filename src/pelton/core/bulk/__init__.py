"""Many messages at a time as Arrow columns, for clients: received messages and outgoing publishes."""
