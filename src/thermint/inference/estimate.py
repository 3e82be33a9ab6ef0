"""The log evidence from draws that there are already; no sampler is needed."""

from __future__ import annotations

import time
from dataclasses import replace

import jax
import numpy as np

from thermint.control.plan import make_plan, without_gradients
from thermint.estimators import table
from thermint.estimators.path_summary import summarise_draws
from thermint.inference.summary import summarise
from thermint.model.draws import Draws
from thermint.model.result import Evidence
from thermint.model.settings import Settings
from thermint.path.ladders import as_ladder
from thermint.path.quadrature import rule_of
from thermint.runtime.setup import require_float64


def estimate(
    draws: Draws,
    *,
    method: str = "cti",
    degree: int | str = "auto",
    rule: str | None = None,
    crossfit: bool = True,
) -> Evidence:
    """Estimate the log evidence from draws, made by `sample` or by any other sampler.

    Args:
        draws: from every power posterior of a ladder.
        method: "cti", the controlled thermodynamic integral; "bridge", stepping stones in bridge form with the same
            control variates, which has no quadrature error; "stepping-stone", "mbar" or "ais" (annealed importance
            sampling in equilibrium), without control variates; "cais", the last with control variates for all rungs
            jointly, which gain little if anything.
        degree: of the polynomial trial functions, 0 for none, or "auto", which is 1 for "cais".
        rule: quadrature along the ladder: "trapezoid", "second-order", or "lobatto". By default that of the ladder: the
            last for `ladders.lobatto`, else the second.
        crossfit: fit the coefficients to other draws than they are applied to. False is the paper's plug-in, which
            biases the answer slightly towards what the draws show.

    Example:
        >>> import thermint
        >>> draws = thermint.sample(thermint.paper.linear.model(), draws=100, populations=2)
        >>> result = thermint.estimate(draws, degree=2, rule="trapezoid")
        >>> result.mc_error < 1e-9  # degree 2 is exact for a normal posterior
        True
    """
    begin = time.perf_counter()
    require_float64()
    if method not in table.methods():
        raise ValueError(f"method = {method!r}: it must be one of {', '.join(map(repr, table.methods()))}.")
    if isinstance(draws, Draws) and np.all(np.isnan(draws.grad_log_likelihood)):
        degree = without_gradients(degree)
        draws = draws._replace(grad_log_likelihood=np.zeros(draws.grad_log_likelihood.shape))
    draws = check_draws(draws)
    ladder = np.asarray(draws.ladder)
    populations, length, rungs, dimension = draws.position.shape
    plan = make_plan(
        draws=length,
        populations=populations,
        rungs=rungs,
        dimension=dimension,
        degree=degree,
        rule=rule_of(rule, ladder),
        crossfit=crossfit,
    )
    path = summarise_draws(draws, plan)
    result = summarise(path, method=method, evaluations=0, begin=begin, settings=Settings(), draws=draws)
    return replace(result, posterior=path.posterior)


def check_draws(draws: Draws) -> Draws:
    """Return the draws as float64 arrays, or say which field is wrong.

    Raises:
        ValueError: shapes that do not fit each other, a bad ladder, or values that are not finite.
    """
    if not isinstance(draws, Draws):
        raise TypeError(f"draws must be a thermint.Draws, not {type(draws).__name__}.")
    ladder = as_ladder(draws.ladder)
    draws = jax.tree.map(lambda a: np.asarray(a, dtype=np.float64), draws)
    if draws.position.ndim != 4:
        raise ValueError(f"position must have axes [population, draw, rung, d]; it has shape {draws.position.shape}.")
    for name, array in draws._series().items():
        expected = draws.position.shape[: 4 if "grad" in name or name == "position" else 3]
        if array.shape != expected:
            raise ValueError(
                f"{name} has shape {array.shape}; with position {draws.position.shape} it must be {expected}."
            )
        if name != "acceptance" and not np.all(np.isfinite(array)):
            population, draw, rung = np.argwhere(~np.isfinite(array))[0][:3]
            raise ValueError(
                f"{name} is not finite at population {population}, draw {draw}, rung {rung}. Draws must lie where the "
                "posterior density is positive; leave out others and say so in `outside`."
            )
    if draws.position.shape[2] != len(ladder):
        raise ValueError(f"ladder has {len(ladder)} rungs but the draws have {draws.position.shape[2]}.")
    return draws._replace(ladder=ladder)
