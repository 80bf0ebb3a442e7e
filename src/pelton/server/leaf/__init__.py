"""Leaf nodes: servers that connect to this one, and hubs that this one connects to, each bound to an
account.

`negotiation` has the messages before the traffic, `nodes` the connected leaf nodes, `remotes` the
connections to hubs, `service` is the part of a server that runs them. The core carries messages and
interest (core/broker/leaf, core/broker/remote_servers).
"""
