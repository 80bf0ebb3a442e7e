"""Key-value buckets over JetStream, without transport: what both halves of the client share.

::

    entries      stored entries; keys and values as subjects, headers and bytes
    codecs       keys and values as users see them
    config       the configuration of a bucket, and of its stream

The calls are in ``keyvalue``, ``watches`` and ``transactions`` of each half, and those of JetStream in
``buckets``; ``consume/ordered.py`` has the position of a watch. ``pelton.api.keyvalue`` has the names and headers
of the wire.
"""
