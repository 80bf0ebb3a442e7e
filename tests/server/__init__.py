"""Tests of the server: options, configuration, clients, monitoring, whole processes."""
