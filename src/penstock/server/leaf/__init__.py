"""Leaf nodes: servers that are connected to this one, or that this one connects to, each bound to
an account of its side.

`handshake` is what they say to each other, `nodes` who is there and what follows from it, `remotes`
connects and connects again, `part` puts it into a server. Messages and interest are the core's
(core/broker/leaf, core/broker/remote_servers).
"""
