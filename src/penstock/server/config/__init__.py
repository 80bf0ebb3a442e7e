"""The configuration file: nats-server's grammar, which keys there are, what each may hold, and where
its value goes in the Settings.

`grammar` reads the text, `reader` walks it along tables of keys, `values` makes such keys, and each
section has a module: a function that is a key of the table above it. Nothing here knows what
settings do.
"""

from penstock.server.config.load import load_config, read_config

__all__ = ["load_config", "read_config"]
