"""The data plane: compiled modules that everything touched once per message lives in."""
