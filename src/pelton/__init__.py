"""Pelton: JetStream, the NATS persistence engine, in Python.

Packages, from the bottom up (imports go strictly downward, held by ``tests/test_layers.py``)::

    level 5   cli                        testing
    level 4   embedded                   pipeline  sql
    level 3   server   store             spark  kombu  apply  plgd
    level 2   engine                     client
    level 1   api
    level 0   core     errors  nuid  nkeys  vault  arrow
"""

__version__ = "0.1.0"
