"""What a pipeline is: one YAML file, read and checked without Spark.

=============  =====================================================================================
``document``   YAML with line numbers, and variables of the environment
``problems``   what is wrong, one line each
``keys``       which keys there are, and what they mean
``model``      sources, steps and sinks
``graph``      who reads whom
``fields``     the keys of a section, each as what it must be
``sections``   one source, step or sink out of its section of the file
``reading``    the whole file
``options``    options of formats, by the parsers of the formats themselves
``functions``  the Python functions that steps name
``drawing``    the graph as text
``example``    a file to begin with
=============  =====================================================================================
"""
