"""Runs a pipeline on Spark.

==================================  ================================================================
``queries``, ``definition``         which query feeds which sinks; what the last run was of
``stages``, ``frames``              steps as DataFrames
``schemas``                         schemas of decoded payloads, by batch
``analysis``, ``targets``           checks with Spark, of sources and of targets
``writing``                         rows into sinks: a batch at a time, or by a query of the sink's own
``catching``, ``throwing``          rows that throw in a step with ``onError: reject``
``rejected``, ``locating``          what a rejected row keeps; the message and key of an error
``replaying``, ``stored``           rejected messages, processed again
``engine``, ``supervising``         queries started, watched and stopped
``job``, ``command``                a whole run, for programs; ``pelton pipeline run``
``numbers``, ``counting``           the progress of queries, and the rows of sinks
``observing``                       what a run tells others:
``alerting``, ``conditions``        alerts
``lineage``, ``datasets``           events of OpenLineage
``live``, ``catalogs``              the numbers for ``watch``; tables in Unity Catalog and Glue
``status``, ``picture``             the progress of a pipeline, without Spark
``upgrade``                         what a changed file does
``preview``                         rows of steps without a run
``durable``                         small files of the state folder
==================================  ================================================================
"""
