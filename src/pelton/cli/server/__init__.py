"""The commands of ``pelton server``: running servers, and tools for operators."""
