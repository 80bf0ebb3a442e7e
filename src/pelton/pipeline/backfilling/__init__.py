"""Older messages into sinks: a range of a stream, or a whole table made anew.

=============  =====================================================================================
``ranges``     ranges of sequences, and the record of those that a sink has
``reading``    the messages of a sink's sources as a batch
``backfill``   a range into sinks, chunk by chunk, each row once
``rebuild``    a table made anew from its stream, and replaced in one commit
=============  =====================================================================================
"""
