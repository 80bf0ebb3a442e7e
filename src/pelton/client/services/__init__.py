"""Services: endpoints that answer requests, and that tools find, name and count (ADR-32).

::

    $SRV.PING            $SRV.PING.<name>            $SRV.PING.<name>.<id>       who is there
    $SRV.INFO ...        $SRV.STATS ...                                          its endpoints, its figures
    <group>.<endpoint>   in a queue group                                        requests

``models.py`` has the values and their JSON, ``serving.py`` the service, ``discovery.py`` finds services. The
wire form is that of the other NATS clients, so each finds and calls the services of all.
"""
