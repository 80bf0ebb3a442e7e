"""Object stores: objects of any size as chunks in a stream, with one message about each object.

::

    stream OBJ_<bucket>
      $O.<bucket>.C.<nuid>              chunks of one object, in order
      $O.<bucket>.M.<base64url(name)>   the object's properties as JSON; replaces the previous ones

``models.py`` has the JSON and the configuration, ``sources.py`` the contents and files that users give,
``transfers.py`` the state of uploads and downloads. Nothing here waits; ``aio/objectstore.py`` has the calls.
The wire form is that of ADR-20, so every NATS client reads and writes the same objects.
"""
