"""Commands that watch a running system: ``events``, ``top``, ``traffic``, ``trace``, ``latency``."""
