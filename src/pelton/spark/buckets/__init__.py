"""Key-value buckets and object stores: ``format("jetstream_kv")``, ``format("jetstream_object")``.

=========================================  =======================================================
``kv_options``, ``kv_bucket``              the options of a read; a bucket as its stream
``kv_source``, ``kv_reading``              the state of a bucket or its changes, as rows
``kv_sink``                                rows as values of keys
``object_sink``, ``object_store``          rows as objects, objects as messages
=========================================  =======================================================
"""
