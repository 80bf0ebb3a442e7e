"""The options about rows that a table cannot hold. It loads no Arrow: Spark imports it to look at a format."""

from __future__ import annotations

from dataclasses import dataclass

from pelton.spark.parsing import OptionError, Row, one_of, text

FAIL, SIDE = "fail", "side"
ASIDE_ROWS: tuple[Row, ...] = (
    Row(
        "onRowError",
        "on_row_error",
        one_of(FAIL, SIDE),
        "What a row that the table cannot hold does: fail the write, or go to errorPath.",
    ),
    Row("errorPath", "error_path", text, "Side output: a folder of Parquet files."),
)


@dataclass(frozen=True)
class AsideOptions:
    """What becomes of rows that the table cannot hold."""

    on_row_error: str = FAIL
    error_path: str | None = None

    def __post_init__(self) -> None:
        """Raise :class:`OptionError` for options that contradict one another."""
        if self.on_row_error == SIDE and self.error_path is None:
            raise OptionError("onRowError is side: say where, with errorPath")
        if self.on_row_error == FAIL and self.error_path is not None:
            raise OptionError("errorPath is for onRowError=side")


FAILING = AsideOptions()


def take_aside(values: dict[str, object]) -> AsideOptions:
    """Remove these options from parsed ones."""
    names = ("on_row_error", "error_path")
    return AsideOptions(**{name: str(values.pop(name)) for name in names if name in values})
