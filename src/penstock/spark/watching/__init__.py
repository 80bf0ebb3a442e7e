"""What operators see of a query: the durable that follows it, messages, metrics.

==========================  ======================================================================
``lag``, ``lag_moves``      a durable consumer whose ack floor is what a query has committed
``progress``, ``report``    what Spark says of its queries, as messages on a subject
``metrics``                 the same for Prometheus
==========================  ======================================================================
"""
