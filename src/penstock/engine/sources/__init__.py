"""Mirrors and sources: streams that follow other streams, of this server or of another one.

`checks` is what a configuration may ask for, `supply` what a following stream keeps, `upstream` one
origin of it within the server, `remote` one that is reached by the JetStream API over a `links`.
"""
