"""The log of the server: lines to stderr, files or a syslog, with limits on their number."""
