"""The ``penstock`` command: what a person at a terminal does with a server, over
``penstock.client``.

Modules are loaded when their command is used; rich only when there is a terminal to draw on.
"""
