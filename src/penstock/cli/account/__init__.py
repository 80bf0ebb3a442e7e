"""``penstock account``: the account of the connection."""
