"""The main job: log files into a stream, the stream through Spark into tables.

================  ==================================================================================
``names``         headers and subjects of shipped lines
``files``         finding log files, telling one file from another, reading lines as files grow
``shipper``       publishing lines so that none is lost or doubled, whatever is killed when
``transforms``    DataFrame to DataFrame: messages to lines, text to columns, lines to counts
``landing``       each micro-batch into the two tables, exactly once
``server``        the server that the job starts
``parts``         the shipper and Spark beside the main thread
``progress``      what a person sees while it runs, and the summary
``settings``      what the command line says
``run``           ``penstock run``: all of the above wired together
================  ==================================================================================
"""
