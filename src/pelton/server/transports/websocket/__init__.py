"""The WebSocket listener: request and response (`upgrade`), origins, frames, and the acceptor. Loaded only
when the server has such a listener or a WebSocket remote.
"""
