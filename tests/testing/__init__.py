"""Tests of pelton.testing."""
