"""The server's shell: options, configuration, sockets, timers, signals, logs and monitoring around
core and engine.

It runs on asyncio over uvloop; the per-message path is not here but in ``penstock.core``. Modules
import what they need when they need it, because how fast a server answers after its start is part
of what it promises.
"""
