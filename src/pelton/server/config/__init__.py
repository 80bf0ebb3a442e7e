"""The configuration file: nats-server's grammar, the keys, their values, and their place in the Settings.

`grammar` parses the text, `reader` walks it along tables of keys, `values` makes keys. Each section has a
module with a function that handles its key in the table above it.
"""

from pelton.server.config.load import load_config, read_config

__all__ = ["load_config", "read_config"]
