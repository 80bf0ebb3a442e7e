"""The log: lines for the operator, in files, to a syslog, not more of them than somebody can read."""
