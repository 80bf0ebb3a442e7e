"""The client: its parts without a network, and the whole against real servers."""
