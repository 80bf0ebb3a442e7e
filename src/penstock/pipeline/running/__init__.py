"""A pipeline at work, on Spark.

===============  ===================================================================================
``queries``      which query feeds which sinks, remembered in the state folder
``frames``       steps as DataFrames
``writing``      rows into sinks: a batch at a time, or by a query of their own
``targets``      what is read and written, looked up before any query runs
``engine``       queries started, watched and stopped
``supervising``  what any job does with its streaming queries
``numbers``      how far they are, for a screen and for programs
``job``          a run from begin to end, for programs
``syntax``       SQL read by Spark's parser, without a session
``command``      ``penstock pipeline run``
``status``       how far a pipeline is, without Spark
===============  ===================================================================================
"""
