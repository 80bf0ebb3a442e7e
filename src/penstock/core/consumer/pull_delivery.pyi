"""The pull side of a consumer: requests come, wait, are served and end."""

from penstock.core.broker.reactor import Task

class PullDelivery(Task):
    """The part of a consumer that knows of requests; see Consumer."""
