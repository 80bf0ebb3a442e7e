"""Partitioned consumer groups: the members of a group share the partitions of a stream.

Messages of one partition go to one member, in order. Documents, names and consumers are those of
orbit's ``pcgroups`` package, so members of both may be in one group.

::

    config.py      the documents in the buckets, and the names
    partitions.py  which member has which partitions, and the consumer that delivers them
    watching.py    the newest version of a group's document
    intake.py      one member's messages: joins, leaves, hands partitions over
    managing.py    creating, changing and deleting groups

Modules here know no transport; ``aio/groups.py`` and ``blocking/groups.py`` have the classes of users.
"""
