"""Loads on a server: many connections in one thread, with what happens once per message compiled."""
