"""Connections and subjects: the reactor, sessions, the router, imports between accounts, leaf nodes."""
