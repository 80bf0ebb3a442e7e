"""Streams and consumers from create or recovery to delete or close."""
