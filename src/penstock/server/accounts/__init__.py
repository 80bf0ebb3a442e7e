"""Accounts: who shares which subjects with whom.

`registry` has them by name, `sharing` checks exports and imports, `links` keeps the core's objects in step
with the settings; `mapping`, `latency` and `who` are parts of that.
"""

from penstock.server.accounts.registry import Accounts, ServerAccount

__all__ = ["Accounts", "ServerAccount"]
