"""Transports: listeners, TLS, WebSocket, the PROXY protocol.

A listener accepts a socket, an acceptor brings it through TLS, a proxy's header or the WebSocket
upgrade, a pipe moves bytes through TLS, and a transport connects the pipe to a connection of the core.
"""
