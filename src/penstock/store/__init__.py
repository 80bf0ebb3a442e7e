"""Working on a store folder without a server: look, check, repair, read, back up, restore.

Pure functions over a disk and a folder that give typed results (store.reports); what a store's
files mean is core's and the engine's. Who prints is the command line.
"""
