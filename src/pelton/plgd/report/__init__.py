"""A report about a hub's devices: figures and pictures made of the tables of `pelton.plgd.tables`.

::

    tables on the disk ──► sources.open_tables ──► DuckDB ──► figures.measure ──► Figures ──► page.render ──► HTML
                                                   queries    one query, one list           charts: SVG

The page is one file without anything from elsewhere. Figures are plain values, so `pelton plgd report --json`
prints the same numbers. No module here knows the time: the caller says which span of time is meant.
"""

from .figures import Figures, measure
from .page import render
from .queries import QUERIES, Query
from .sources import Scope, Tables, TablesError, open_tables

__all__ = [
    "QUERIES",
    "Figures",
    "Query",
    "Scope",
    "Tables",
    "TablesError",
    "measure",
    "open_tables",
    "render",
]
