"""Messages and index files as ciphertext; the compiled functions are declared in encryption.pxd."""

class LogLocked(OSError):
    """A log is encrypted and there is no key for it."""
