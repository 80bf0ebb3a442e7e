"""Tests of penstock.testing."""
