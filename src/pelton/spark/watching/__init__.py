"""Tools for operators to watch a query: a durable that follows it, messages, metrics.

==========================  ======================================================================
``lag``, ``lag_moves``      a durable consumer whose ack floor is the committed position of a query
``progress``, ``report``    Spark's reports of its queries, as messages on a subject
``listening``               the events of Spark, at little cost
``metrics``                 the same reports for Prometheus
==========================  ======================================================================
"""
