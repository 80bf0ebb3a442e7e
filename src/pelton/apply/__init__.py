"""Configuration as code: compares files about streams, consumers and buckets with a server.

::

    files ──► reading ──► Resource ──► planning ──► Plan ──► showing     text, JSON
               │                          ▲           └────► executing   the calls of JetStream
      jsonc  documents  hcl            inspecting ◄── server
               │                          └──► exporting ──► files again
      plain  kubernetes  terraform
               │
             tables  values

A reader turns text into nodes, values with their places. A dialect turns nodes into the names and units of
the JetStream API, with the defaults of its own tools. From there on one form is left. Nothing here opens a
file: callers hand in texts and a client.
"""
