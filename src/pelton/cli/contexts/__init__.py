"""``pelton context``: URLs and credentials under names."""
