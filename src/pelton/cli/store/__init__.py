"""``pelton store``, and ``--store`` of other commands: a store folder without a server."""
