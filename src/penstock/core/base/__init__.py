"""Bytes, maps, time, disks and other values: the floor that every room of the core stands on."""
