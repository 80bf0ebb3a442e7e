"""Applies the declarations of the configuration, first streams, then consumers: before the first client is
served, and at each reload. The engine creates them.
"""

from collections.abc import Callable

from pelton.api.codec import JsonError
from pelton.api.errors import ApiError
from pelton.engine.account.account import JetStreamAccount
from pelton.engine.calls.declared import CREATED, THERE, declare_consumer, declare_stream
from pelton.server.errors import StartError
from pelton.server.logs.log import Log
from pelton.server.settings.declared import Declared


def apply(
    declared: list[Declared], account_of: Callable[[str], JetStreamAccount | None], log: Log
) -> None:
    """Create or change all of them. StartError with one line for each failure, after the others
    were applied.
    """
    problems: list[str] = []
    for each in sorted(declared, key=lambda one: bool(one.consumer)):
        account = account_of(each.account)
        if account is None:
            where = f'account "{each.account}"' if each.account else "this server"
            problems.append(f"{each.place}: {each.shown}: {where} has no JetStream")
            continue
        try:
            if each.consumer:
                outcome = declare_consumer(account, each.stream, each.consumer, each.fields)
            else:
                outcome = declare_stream(account, each.stream, each.fields)
        except (ApiError, JsonError) as problem:
            problems.append(f"{each.place}: {each.shown}: {problem}")
            continue
        if outcome != THERE:
            done = "Created" if outcome == CREATED else "Updated"
            log.info(f"{done} {each.shown}, declared at {each.place}")
    if problems:
        raise StartError("\n".join(problems))
