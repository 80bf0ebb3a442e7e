"""``pelton object``: object stores and the objects in them."""
