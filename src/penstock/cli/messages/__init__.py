"""``penstock pub``, ``sub``, ``req`` and ``reply``, and what they share: bodies, templates, decoders."""
