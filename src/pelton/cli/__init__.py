"""The ``pelton`` command: work with a server from a terminal, through ``pelton.client``.

A module is loaded when its command is used; rich is loaded only if there is a terminal.
"""
