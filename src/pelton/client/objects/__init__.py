"""Object stores: objects of any size as chunks in a stream, with one message about each object.

::

    stream OBJ_<bucket>
      $O.<bucket>.C.<nuid>              chunks of one object, in order
      $O.<bucket>.M.<base64url(name)>   the object's properties as JSON; replaces the previous ones

``store.py`` has the calls of a handle; they stand on ``transfers.py``, which puts and gets bytes, and on
``properties.py``, which reads and replaces the messages about objects. ``uploading.py`` and
``downloading.py`` carry chunks, ``watching.py`` follows changes, ``sources.py`` reads and writes what a user
hands in, ``models.py`` has the JSON. The wire form is that of ADR-20, so every NATS client reads and writes
the same objects.
"""
