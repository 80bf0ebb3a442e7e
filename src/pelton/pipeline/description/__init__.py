"""The description of a pipeline: one YAML file, read and checked without Spark.

=============  =====================================================================================
``document``   YAML with line numbers, and environment variables
``problems``   the faults of a file, one line each
``keys``       the keys of a file and their meanings
``model``      sources, steps and sinks
``graph``      which node reads which
``fields``     the keys of a section, converted to their types
``sections``   one source, step or sink, read from its section of the file
``reading``    the whole file
``options``    options of formats, checked by the formats' own parsers
``functions``  the Python functions that steps name
``drawing``    the graph as text
``example``    the file that ``pelton pipeline init`` prints
=============  =====================================================================================
"""
