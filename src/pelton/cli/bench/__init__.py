"""``pelton bench``: load on a server, and how fast it was.

``links`` is the loop over all connections of a load, ``roles`` what one client of it does, ``supply`` the bytes that it
sends, ``report`` the figures. The commands are in ``core``, ``streams`` and ``buckets``. What happens once per message
is in the compiled core (``core/bulk``), so that the load costs less than the server that it measures.
"""
