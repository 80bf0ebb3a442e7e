"""Twins of the portable compiled modules, in plain Python, for an installation without them.

`pelton.core.libraries` gives ``pelton.core.plain.wire`` to those who import ``pelton.core.protocol.wire`` where the
compiled module is missing, or where PELTON_PURE=1 hides it. A twin has the interface of the stub beside the compiled
module as far as clients use it, and the same results. It is written to be read; twins import twins only.
"""
