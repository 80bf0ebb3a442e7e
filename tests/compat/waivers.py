"""The differences to nats-server that are left on purpose.

Each has a row with its reason on the page `docs/reference/differences.md`; a test holds that both
have the same. What is not here is a finding.
"""

from __future__ import annotations

WAIVED: dict[str, str] = {}
