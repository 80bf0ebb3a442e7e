"""``pelton apply``, ``plan``, ``drift``, ``export`` and ``validate``: configuration as code."""
