"""``pelton account``: the account of the connection."""
