"""The server inside a program."""
