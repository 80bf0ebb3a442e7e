"""Real server processes that are killed, and disks that fail."""
