"""Tests of the WebSocket listener."""
