"""Proof that rows are there once: streams of messages of all shapes become Delta tables, and tables
streams, while the job is killed on the way; then every row is compared.

    python -m tests.spark.exact --messages 1000000 --kills 10 --seed 7 --server /usr/bin/nats-server

================  ================================================================================
``shapes``        a message by its number: stream, subject, headers, payload
``ledger``        what the server acknowledged and what was removed again; what a table must hold
``filling``       publishing and removing, over a bare connection
``reading``       what the server itself has in a stream, over a bare connection
``checking``      a table against the ledger, a stream against a table, row by row
``job``           the driver that is killed; ``lives``: starting and killing it
``moments``       when it is killed, and what the kill met
``cluster``       a master and two workers
``proof``         all of it in turn
================  ================================================================================
"""
