"""Tables that come with the package, and lookups among few values."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import resources
from typing import TypeVar

import numpy as np
import pandas as pd

Value = TypeVar("Value")


def read(name: str) -> pd.DataFrame:
    """Read a file of the folder data."""
    with resources.files(__package__).joinpath(f"data/{name}.csv").open() as file:
        # Numbers of pandas' own parser may be off in the last digit.
        return pd.DataFrame(np.genfromtxt(file, delimiter=",", names=True, dtype=None, encoding="utf-8"))


def look_up(table: Mapping[int, Value], key: int, name: str) -> Value:
    """Return the entry of a key, or say which keys there are.

    >>> look_up({3: "a", 4: "b"}, 5, "g")
    Traceback (most recent call last):
    ...
    ValueError: g must be 3 or 4, not 5.
    """
    if key not in table:
        raise ValueError(f"{name} must be {' or '.join(map(str, table))}, not {key!r}.")
    return table[key]
