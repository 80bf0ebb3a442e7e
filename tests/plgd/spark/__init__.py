"""Tests of a hub's events in Spark."""
