"""``pelton consumer`` and ``explain``: a module for each group of verbs."""
