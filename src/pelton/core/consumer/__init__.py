"""A consumer: the next message to deliver, pending messages, pull requests and push delivery, and the stored state."""
