"""``pelton pub``, ``sub``, ``req`` and ``reply``, and their common part: bodies, templates, decoders."""
