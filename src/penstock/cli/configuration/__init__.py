"""``penstock apply``, ``plan``, ``drift``, ``export`` and ``validate``: configuration as code."""
