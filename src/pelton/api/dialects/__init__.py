"""The dialects of JetStream's first previews, 2019 and 2020, as requests of today's API.

`names` says which dialect a stream or consumer speaks, `configurations` translates their
configurations, `requests` is the table: subject and body of an old request → calls of today's API →
the old answer. Nothing here does I/O, so that a server and a client translate with the same table.
"""
