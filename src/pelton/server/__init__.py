"""The server around core and engine: options, configuration, sockets, timers, signals, logs, monitoring.

It runs on asyncio over uvloop; ``pelton.core`` carries the messages. Modules import others only at
the first use, because the time from the start to the first answer matters.
"""
