"""The tables of a hub are its truth, whatever is killed on the way."""
