"""Key-value buckets over JetStream, without transport: what both shells share.

::

    managing     create, open, list and delete buckets (calls of JetStream)
        │
    handle       what a user's handle makes: watches, transactions, handles with other codecs
        │
    many         many keys at one moment: keys, history, snapshots
        │
    bucket       the calls about one key and the bucket ──────► transaction   several keys at once
        │   │
        │   watching    changes of keys in order, from an ordered consumer
        │
    keyspace     keys and values as subjects, headers and bytes
        │
    config  entries  codecs     values: configuration, stored entries, keys and values as users see them

``pelton.api.keyvalue`` has the names and headers of the wire.
"""
