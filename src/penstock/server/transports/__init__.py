"""How bytes come in and go out: listeners, TLS, WebSocket, the PROXY protocol.

A listener accepts, a reception brings a socket through what stands before the first operation, a pipe
moves bytes through TLS or frames, and a transport ties it to a connection of the core. Nothing here
knows what operations mean.
"""
