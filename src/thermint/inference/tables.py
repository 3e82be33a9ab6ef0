"""Tables of several runs, which print more than their columns."""

from __future__ import annotations

import html
from abc import abstractmethod
from collections.abc import Sequence

import pandas as pd


class RunTable(pd.DataFrame):
    """A table that prints values with their errors, and notes below; a plain one where columns are taken away."""

    needed: tuple[str, ...] = ()

    @property
    def _constructor(self) -> type[pd.DataFrame]:
        return pd.DataFrame  # what is made of a part of the table is a plain one

    @abstractmethod
    def printed(self) -> pd.DataFrame:
        """Return the table as it is printed."""

    @abstractmethod
    def _notes(self) -> Sequence[str]:
        """Return the lines below it."""

    def __repr__(self) -> str:
        if not set(self.needed) <= set(self.columns):
            return pd.DataFrame(self).__repr__()
        rows = {name: pd.get_option(f"display.{name}") for name in ("max_rows", "min_rows")}
        with pd.option_context("display.max_colwidth", None):
            return "\n".join([self.printed().to_string(**rows), *self._notes()])  # lines are not wrapped

    def _repr_html_(self) -> str:
        if not set(self.needed) <= set(self.columns):
            return pd.DataFrame(self).to_html()
        table = self.printed().to_html(max_rows=pd.get_option("display.max_rows"))
        return table + self._html_notes([html.escape(note) for note in self._notes()])

    def _html_notes(self, notes: Sequence[str]) -> str:
        return "".join(f"<p>{note}</p>" for note in notes)
