"""Consuming the messages of one consumer, without transport: pull, ordered and push consumers.

::

    handles.py  ordering.py  pushed.py    a consumer: next, fetch, consume
          └─────────┼──────────┘
              operation.py                one consume(): options, handlers, how it ends
                    │
                intake.py                 buffered messages, recovery after losses
                pulled.py                 those of pull requests: when to send one, what ends it
                    │
         requests.py  events.py           the size of requests, and what users are told
"""
