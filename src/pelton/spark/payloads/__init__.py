"""Payloads as columns: JSON, MessagePack, CBOR, Avro and Protobuf, with schemas that may grow.

::

    payload ──formats──► values ──conversion──► a struct, and the rest that does not fit as JSON
                           └──inference──► a schema

=================  ================================================================================
:mod:`.formats`    from bytes to values: dictionaries, lists, numbers, texts
:mod:`.conversion` from values to a column of Arrow; the rest is kept
:mod:`.inference`  the schema of values, and schemas that get new fields
:mod:`.whole`      many JSON payloads at once, for those without a fault
:mod:`.registry`   schemas by their number, from a bucket or a registry with Confluent's API
:mod:`.frames`     DataFrames of Spark
=================  ================================================================================

Only ``frames`` depends on Spark.
"""
