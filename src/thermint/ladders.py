"""Temperature ladders; see `thermint.path.ladders`."""

from thermint.path.ladders import (
    Ladder,
    adapted,
    as_ladder,
    barrier,
    equal_rejection,
    geometric,
    is_lobatto,
    lobatto,
    optimal,
    power,
)

__all__ = [
    "Ladder",
    "adapted",
    "as_ladder",
    "barrier",
    "equal_rejection",
    "geometric",
    "is_lobatto",
    "lobatto",
    "optimal",
    "power",
]
