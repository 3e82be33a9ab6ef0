"""What can be seen to be wrong: statistics of a run, each with the warnings that it raises."""

from thermint.diagnostics.agreement import DISAGREEMENT, agree, estimator_warnings, round_warnings
from thermint.diagnostics.convergence import convergence, convergence_warnings, monotone_warnings, rung_names
from thermint.diagnostics.narrowness import narrow_warnings, narrowness
from thermint.diagnostics.support import invalid_warnings, supported_warnings
from thermint.diagnostics.tails import Tail, heavy_warning, tail
from thermint.diagnostics.tempering import (
    MIN_ACCEPTANCE,
    acceptance_warnings,
    barrier,
    health,
    round_trips,
    trip_warnings,
)
from thermint.diagnostics.uncertainty import error_warnings
from thermint.diagnostics.weights import MIN_WEIGHTS, tail_index, weight_warnings
from thermint.sampling.swaps import swap_rates

__all__ = [
    "DISAGREEMENT",
    "MIN_ACCEPTANCE",
    "MIN_WEIGHTS",
    "Tail",
    "acceptance_warnings",
    "agree",
    "barrier",
    "convergence",
    "convergence_warnings",
    "error_warnings",
    "estimator_warnings",
    "health",
    "heavy_warning",
    "invalid_warnings",
    "monotone_warnings",
    "narrow_warnings",
    "narrowness",
    "round_trips",
    "round_warnings",
    "rung_names",
    "supported_warnings",
    "swap_rates",
    "tail",
    "tail_index",
    "trip_warnings",
    "weight_warnings",
]
