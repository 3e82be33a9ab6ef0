"""Temperature ladders: increasing inverse temperatures from 0 (the prior) to 1 (the posterior).

Some are fixed: `power`, `geometric`, `lobatto`. Others are chosen from the table of rungs of a short run: `optimal`,
`equal_rejection`, `adapted`. Such a table is `Evidence.rungs`, or any mapping with arrays of the same names:

    t, mean = E_t[g], variance = V_t[g], ratio = residual variance of g after control / V_t[g],
    swap_rate = acceptance of swaps with the next rung (see `thermint.diagnostics.swap_rates` for traces of g)

    >>> import thermint
    >>> model = thermint.paper.radiata.model(1)
    >>> options = {"reference": "prior", "rule": "second-order", "draws": 100}
    >>> short = thermint.evidence(model, ladder=16, **options)
    >>> better = thermint.evidence(model, ladder=optimal(short.rungs), **options)
    >>> better.quadrature_error < short.quadrature_error
    True
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, TypeAlias

import numpy as np
import numpy.typing as npt
from numpy.polynomial.legendre import Legendre, leggauss
from scipy.integrate import cumulative_trapezoid
from scipy.interpolate import PchipInterpolator

from thermint.model.options import require_whole

if TYPE_CHECKING:
    import pandas as pd

Ladder = npt.NDArray[np.float64]
Table: TypeAlias = "Mapping[str, npt.ArrayLike] | pd.DataFrame"

GRID = 4001  # points on which distribution functions are computed and inverted, for rungs that are exact to five digits


def power(rungs: int = 51, exponent: float = 5.0) -> Ladder:
    """t_i = (i / (rungs - 1)) ** exponent; the paper's ladder is ``power(51, 5)``.

    >>> power(3)
    array([0.     , 0.03125, 1.     ])
    """
    require_whole("rungs", rungs, at_least=2)
    return np.linspace(0.0, 1.0, rungs) ** exponent


def geometric(rungs: int, smallest: float) -> Ladder:
    """Zero, then a constant factor from rung to rung between ``smallest`` and 1.

    >>> geometric(4, 0.01)
    array([0.  , 0.01, 0.1 , 1.  ])
    """
    require_whole("rungs", rungs, at_least=3)
    if not 0 < smallest < 1:
        raise ValueError(f"smallest = {smallest}: it must lie between 0 and 1, such as 1e-4.")
    return np.append(0.0, np.geomspace(smallest, 1.0, rungs - 1))


def lobatto(rungs: int) -> Ladder:
    """Gauss-Lobatto nodes: 0, 1 and the zeros of the derivative of a Legendre polynomial; for ``rule="lobatto"``.

    For a path along which E_t[g] is smooth, such as one from a reference close to the posterior: few rungs then
    integrate it to many digits. From a wide prior it is not, and `power` needs fewer.

    >>> lobatto(4)
    array([0.       , 0.2763932, 0.7236068, 1.       ])
    """
    require_whole("rungs", rungs, at_least=2)
    slope = Legendre.basis(rungs - 1).deriv()
    x = np.sort(slope.roots().real)
    x -= slope(x) / slope.deriv()(x)  # a step of Newton's method, for the last digit
    x = np.concatenate([[-1.0], (x - x[::-1]) / 2, [1.0]])
    return (1 + x) / 2


def is_lobatto(ladder: Ladder) -> bool:
    """Say whether a ladder is that of `lobatto`, but for rounding."""
    return bool(np.allclose(ladder, lobatto(len(ladder)), rtol=0, atol=1e-9))


def optimal(table: Table, rungs: int | None = None, *, centred: bool = True, controlled: bool = False) -> Ladder:
    """Quantiles of the density p*(t) that minimises the Monte Carlo variance: p*(t)^2 is proportional to V_t[g].

    Args:
        table: of the rungs of a short run, with t, mean and variance; with ratio too for ``controlled``.
        rungs: number of them; by default as many as in the table.
        centred: False adds E_t[g]^2, as the paper does (Eqn. "optimal ladder") for a t that is drawn at random.
        controlled: take the variance that control variates leave. It minimises the Monte Carlo error alone: steps may
            be too wide to swap or to integrate over.

    >>> t = power(16)
    >>> normal_path = {"t": t, "mean": -1 / (0.01 + t), "variance": 1 / (0.01 + t) ** 2}
    >>> optimal(normal_path, 4).round(3)  # p* is proportional to 1 / (0.01 + t)
    array([0.   , 0.037, 0.207, 1.   ])
    """
    t, mean, variance = _read(table, "mean", "variance")
    if controlled:
        variance = variance * _read(table, "ratio")[1]
    square = np.maximum(variance, 0.0) if centred else np.maximum(variance, 0.0) + mean**2
    return _quantiles(t, _integral(t, _curve(t, np.sqrt(square))), len(t) if rungs is None else rungs)


def equal_rejection(table: Table, rungs: int | None = None) -> Ladder:
    """Cut the communication barrier into equal parts: swaps of all neighbours are rejected equally often.

    From a coarse ladder, whose rejection rates are above a half, repeat it with the rates of the new one (Syed et al.
    2022, non-reversible parallel tempering).

    Args:
        table: of the rungs of a short run, with t and swap_rate.
        rungs: number of them; by default as many as in the table.

    >>> equal_rejection({"t": [0, 0.1, 0.2, 1], "swap_rate": [0.6, 0.8, 0.8, np.nan]}, 3).round(3)
    array([0. , 0.1, 1. ])
    """
    t, rejection = _rejections(table)
    total = PchipInterpolator(_stretch(t, t[1]), np.append(0.0, np.cumsum(np.maximum(rejection, 1e-12))))
    return _quantiles(t, total(_grid(t)), len(t) if rungs is None else rungs)


def barrier(table: Table) -> float:
    """The communication barrier: the sum of the rejection rates of swaps between neighbours.

    A ladder of about twice as many steps makes a state travel between 0 and 1 fastest (Syed et al. 2022).

    >>> barrier({"t": [0, 0.1, 1], "swap_rate": [0.5, 0.75, np.nan]})
    0.75
    """
    return float(_rejections(table)[1].sum())


def adapted(table: Table, tolerance: float = 1e-3, *, most: int = 200) -> Ladder:
    """Choose both rungs and their number, for the second-order rule, from a short run such as one on ``power(16)``.

    The rungs are those of `optimal`, as many as it takes for swaps that are rejected about half of the time at most,
    two for each unit of the barrier, integral of sqrt(V_t[g] / pi) dt, and for a quadrature error below the tolerance.
    Noise in the variances adds rungs: a fifth for variances known to 5 %, a half for 20 %.

    Args:
        table: of the rungs of a short run, with t and variance.
        tolerance: quadrature error in nats.
        most: number of rungs not to exceed; the error may then be larger, and `Evidence.quadrature_error` will tell.

    >>> t = power(16)
    >>> normal_path = {"t": t, "variance": 1 / (0.01 + t) ** 2}
    >>> [len(adapted(normal_path, tolerance)) for tolerance in (1e-2, 1e-4, 1e-6)]
    [11, 30, 113]
    """
    fewest = 1 + 4  # the error estimate of the second-order rule looks at every fourth
    require_whole("most", most, at_least=fewest)
    if not tolerance > 0:
        raise ValueError(f"tolerance = {tolerance}: it must be above zero; it is a quadrature error in nats.")
    t, values = _read(table, "variance")
    variance = _curve(t, values)
    total = _integral(t, lambda s: np.sqrt(variance(s)))
    rungs = min(max(fewest, 1 + int(np.ceil(2 * total[-1] / np.sqrt(np.pi)))), most)
    while _second_order_error(variance, ladder := _quantiles(t, total, rungs)) > tolerance and rungs < most:
        rungs = min(rungs + max(1, rungs // 10), most)
    return ladder


def as_ladder(ladder: int | npt.ArrayLike | None) -> Ladder:
    """Read what a user may give as a ladder: nothing, a number of rungs, or the inverse temperatures.

    Raises:
        ValueError: fewer than two rungs, or values that do not increase from exactly 0 to exactly 1.
    """
    if ladder is None:
        return power()
    values = np.asarray(ladder, dtype=np.float64)
    if values.ndim == 0:
        if not np.isfinite(values) or values != int(values) or values < 2:
            raise ValueError(f"ladder = {ladder}: a number of rungs must be a whole number, at least 2.")
        return power(int(values))
    if values.ndim != 1 or len(values) < 2:
        raise ValueError(f"ladder must be a vector of at least 2 inverse temperatures; got shape {values.shape}.")
    if not np.all(np.isfinite(values)):
        raise ValueError(f"ladder has a value that is not finite, at rung {np.argmin(np.isfinite(values))}.")
    if values[0] != 0 or values[-1] != 1:
        raise ValueError(
            f"ladder must start at exactly 0 (the prior) and end at exactly 1 (the posterior); it runs from "
            f"{values[0]:g} to {values[-1]:g}."
        )
    steps = np.diff(values)
    if np.any(steps <= 0):
        i = int(np.argmax(steps <= 0))
        raise ValueError(
            f"ladder must increase: rung {i} has t = {values[i]:g} and rung {i + 1} has t = {values[i + 1]:g}. "
            "Sort it and remove repeated values."
        )
    return values


# --- Reading a table ---


def _column(table: Table, name: str, remedy: str) -> np.ndarray:
    try:
        return np.asarray(table[name], dtype=np.float64)
    except (KeyError, TypeError):
        raise ValueError(
            f"table has no column {name!r}: give the rungs of a short run, such as thermint.evidence(...).rungs, or "
            f"{remedy}."
        ) from None


def _read(table: Table, *names: str) -> tuple[np.ndarray, ...]:
    """Return t and the named columns of a table, each [rung] and finite."""
    remedy = f"a dictionary of arrays with {', '.join(map(repr, ('t', *names)))}"
    t, *columns = (_column(table, name, remedy) for name in ("t", *names))
    t = as_ladder(t)
    for name, column in zip(names, columns, strict=True):
        if column.shape != t.shape:
            raise ValueError(f"table: {name} has shape {column.shape}, but there are {len(t)} rungs in t.")
        if not np.all(np.isfinite(column)):
            raise ValueError(f"table: {name} is not finite at rung {np.argmin(np.isfinite(column))}.")
    return t, *columns


def _rejections(table: Table) -> tuple[np.ndarray, np.ndarray]:
    """Return t[rung] and the rejection rates [rung - 1]; the last rung has no next one, whatever its entry."""
    (t,) = _read(table)
    rates = _column(table, "swap_rate", "make it from traces by thermint.diagnostics.swap_rates")
    if rates.shape not in ((len(t),), (len(t) - 1,)):
        raise ValueError(f"table: swap_rate has shape {rates.shape}, but there are {len(t)} rungs in t.")
    rates = rates[: len(t) - 1]
    if not np.all((rates >= 0) & (rates <= 1)):
        i = int(np.argmin((rates >= 0) & (rates <= 1)))
        raise ValueError(f"table: swap_rate is {rates[i]:g} at rung {i}; acceptance rates lie between 0 and 1.")
    return t, 1 - rates


# --- Between the rungs ---
# Functions of t are flat near 0 and close to a power of t further on, over eight decades or more: their logarithm is
# nearly straight on the scale log(1 + t / t_1), with t_1 the first rung above 0.


def _stretch(t: np.ndarray, first: float) -> np.ndarray:
    return np.log1p(t / first)


def _grid(t: Ladder) -> np.ndarray:
    """Equal steps from 0 to 1 on the stretched scale, [point]."""
    return np.linspace(0.0, float(_stretch(t[-1], t[1])), GRID)


def _curve(t: Ladder, values: np.ndarray) -> Callable[[np.ndarray], np.ndarray]:
    """Interpolate positive values [rung]. Those that are not, by noise, are passed over; if none is, take 1."""
    x, positive = _stretch(t, t[1]), values > 0
    logs = np.interp(x, x[positive], np.log(values[positive])) if positive.any() else np.zeros_like(x)
    log_curve = PchipInterpolator(x, logs)
    return lambda s: np.exp(log_curve(_stretch(s, t[1])))


def _integral(t: Ladder, density: Callable[[np.ndarray], np.ndarray]) -> np.ndarray:
    """Integrate a density over t, from 0 up to each point of the grid: [point]."""
    x = _grid(t)
    s = t[1] * np.expm1(x)
    return cumulative_trapezoid(density(s) * (s + t[1]), x, initial=0)


def _quantiles(t: Ladder, total: np.ndarray, rungs: int) -> Ladder:
    """Cut what has piled up to each point of the grid, total[point], into equal parts."""
    require_whole("rungs", rungs, at_least=2)
    ladder = t[1] * np.expm1(np.interp(np.linspace(0.0, total[-1], rungs), total, _grid(t)))
    ladder[0], ladder[-1] = 0.0, 1.0
    return as_ladder(ladder)


def _second_order_error(variance: Callable[[np.ndarray], np.ndarray], ladder: Ladder) -> float:
    """Sum the errors of the second-order rule over the steps of a ladder, as if they all had the same sign.

    That of a step of length h from a to b with centre c is  integral of (t - c) V_t dt - h^2 / 12 (V_b - V_a),  because
    V is the derivative of the mean.
    """
    x, weights = leggauss(8)
    step, centre = np.diff(ladder), (ladder[1:] + ladder[:-1]) / 2
    away = step[:, None] / 2 * x
    moment = (variance(centre[:, None] + away) * away) @ weights * step / 2
    return float(np.sum(np.abs(moment - step**2 / 12 * np.diff(variance(ladder)))))
