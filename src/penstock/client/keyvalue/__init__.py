"""Key-value buckets over JetStream, without transport: what both shells share.

::

    managing     create, open, list and delete buckets (calls of JetStream)
        │
    bucket       the calls of one bucket ──────► transaction   several keys at once
        │   │
        │   watching    changes of keys in order, from an ordered consumer
        │   │
    config  entries  codecs     values: configuration, stored entries, keys and values as users see them

``penstock.api.keyvalue`` has the names and headers of the wire.
"""
