"""Tools for a store folder without a server: check, verify, repair, dump, back up, restore.

Pure functions over a disk and a folder, with typed results (store/reports). The core and the engine
define what the files of a store mean; the command line prints the results.
"""
