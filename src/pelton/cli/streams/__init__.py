"""``pelton stream``, ``replay`` and ``diff-stream``: a module for each group of verbs."""
