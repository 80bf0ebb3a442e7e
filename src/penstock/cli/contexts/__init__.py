"""``penstock context``: URLs and credentials under names."""
