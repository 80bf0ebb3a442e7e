"""The WebSocket listener: request and answer (`upgrade`), origins, frames, and the door that puts
them in front of the core. Loaded only when there is such a listener.
"""
