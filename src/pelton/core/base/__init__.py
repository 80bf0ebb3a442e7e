"""Bytes, maps, time, disks and other values, which all other packages of the core use."""
