"""The main job: log files into a stream, the stream through Spark into tables.

================  ==================================================================================
``names``         headers and subjects of shipped lines
``files``         finding log files, telling one file from another, reading lines as files grow
``rotation``      the names that rotations give
``places``        which file of the stream a file on the disk is, and where it goes on
``following``     the open files
``chain``         publishes messages so that each is stored only after the one before it
``shipper``       publishes lines so that a kill neither loses nor doubles any
``logs.yaml``     the pipeline from the stream to the tables
``transforms``    DataFrame to DataFrame: messages to lines, text to columns
``tables``        reads the tables
``server``        the server that the job starts
``parts``         the shipper and the pipeline beside the main thread
``progress``      the display during a run, and the summary
``settings``      the options of the command line
``run``           ``pelton run``: puts all of the above together
================  ==================================================================================
"""
