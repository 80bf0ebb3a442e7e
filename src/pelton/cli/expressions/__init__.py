"""Conditions over JSON values, in the language of ``--expression`` and ``--filter`` of the ``nats`` command (Expr)."""

import click

from pelton.cli.expressions.conditions import Condition
from pelton.cli.expressions.syntax import ExpressionError

__all__ = ["Condition", "ExpressionError", "given_condition"]


def given_condition(text: str, names: tuple[str, ...]) -> Condition:
    """The condition that an option gives; UsageError if it is wrong."""
    try:
        return Condition(text, names)
    except ExpressionError as error:
        raise click.UsageError(str(error)) from None
