"""Runs a pipeline on Spark.

===============  ===================================================================================
``queries``      which query feeds which sinks, recorded in the state folder
``frames``       steps as DataFrames
``writing``      rows into sinks: a batch at a time, or by a query of the sink's own
``targets``      checks of sources and targets before any query runs
``engine``       queries started, watched and stopped
``supervising``  what every job does with its streaming queries
``numbers``      the progress of queries, for a screen and for programs
``job``          a whole run, for programs
``syntax``       SQL checked by Spark's parser, without a session
``command``      ``pelton pipeline run``
``status``       the progress of a pipeline, without Spark
===============  ===================================================================================
"""
