"""The commands of ``penstock server``: running servers, and tools for operators."""
