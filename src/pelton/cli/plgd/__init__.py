"""``pelton plgd``: the events of a plgd hub."""
