"""The configuration file: nats-server's grammar, the keys, their values, and their place in the Settings.

`grammar` parses the text, `reader` walks it along tables of keys, `values` makes keys, and each section
has a module: a function that is a key of the table above it.
"""

from penstock.server.config.load import load_config, read_config

__all__ = ["load_config", "read_config"]
