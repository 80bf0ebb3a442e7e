"""A consumer: which message comes next, what is unacknowledged, pull requests, and the saved state."""
