"""The deployment files."""
