"""Accounts: their subjects, limits, exports and imports.

`registry` has them by name, `sharing` checks exports and imports, `active_imports` keeps the core's
objects in step with the settings and uses `mapping`, `latency` and `client_info`.
"""

from pelton.server.accounts.registry import Accounts, ServerAccount

__all__ = ["Accounts", "ServerAccount"]
