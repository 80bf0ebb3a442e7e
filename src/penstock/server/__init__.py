"""The server's shell around core and engine: options, configuration, sockets, timers, signals, logs,
monitoring.

It runs on asyncio over uvloop; ``penstock.core`` has the path of a message. Modules import others only
when they need them, because the time from the start to the first answer matters.
"""
