"""Mirrors and sources: streams that follow other streams, of this server or of another one.

`checks` validates configurations, `upstreams` keeps the upstreams of a following stream, `local` copies
an origin of this server, `linked` reads an origin over the JetStream API, through one of the `links`.
"""
