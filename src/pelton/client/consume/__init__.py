"""What arrives for the readers of a consumer, without transport: pull, ordered and push consumers, watches.

::

    aio/consumers.py   aio/watches.py      the calls: next, fetch, consume; initial, next
                 │
         aio/operations.py                 one consume(): options, handlers, how it ends
                 │
           aio/upkeep.py                   what has to wait: requests after a loss, look-ups
                 │
             intake.py                     buffered messages, and what is known of the consumer
       arrivals.py  ordered.py             pull and push consumers; ordered ones, and watches
                 │
         pull.py  events.py                sizes and bodies of requests; what users are told
"""
