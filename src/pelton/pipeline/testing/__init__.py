"""Tests of a pipeline file, without servers: rows go through its steps, and the results are compared.

==============  ====================================================================================
``given``       the rows of a test as Arrow tables with a source's columns
``comparing``   expected rows beside those that a step made
``running``     the tests of a file on one session
``querying``    SQL over steps
``sampling``    messages of a source as a fixture
``reporting``   results for people and for JUnit's readers
==============  ====================================================================================
"""
