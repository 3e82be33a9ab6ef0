"""The paper's own regression of control variates, and independent draws from a posterior with one mode."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import cache, partial

import jax
import jax.numpy as jnp
import numpy as np
import numpy.typing as npt
from jax import Array
from scipy import stats

from thermint.model.draws import Draws
from thermint.model.evaluation import Evaluation, evaluate
from thermint.model.model import Model
from thermint.runtime.programs import jit


def features(position: np.ndarray, score: np.ndarray, degree: int) -> np.ndarray:
    """Evaluate the paper's w = [z, u, v] (appendix "Second degree polynomials"), or z alone for degree 1.

    From position[draw, d] and score[draw, d], the gradient of the log density; z is minus half of it.
    """
    z = -score / 2
    if degree == 1:
        return z
    j, i = np.triu_indices(position.shape[1], 1)
    v = position[:, i] * z[:, j] + position[:, j] * z[:, i]
    return np.column_stack([z, position * z - 0.5, v])


def plug_in(g: np.ndarray, w: np.ndarray) -> np.ndarray:
    """Plug-in coefficients phi[feature] of g[draw] + w[draw, feature] phi: minus those of least squares with intercept.

    Centred, unlike the paper's Eqn. "plug" (ERRATA 5), or degree 2 would not be exact where it should be.
    """
    centred = w - w.mean(axis=0)
    unit = centred.std(axis=0)
    return -np.linalg.lstsq(centred / unit, g - g.mean(), rcond=None)[0] / unit


def plug_in_coefficients(draws: Draws, degree: int) -> np.ndarray:
    """Coefficients of the paper's features at every rung, [rung, feature], from all populations together."""
    d = draws.position.shape[-1]
    phi = []
    for i, t in enumerate(np.asarray(draws.ladder)):
        score = np.asarray(draws.grad_log_prior[:, :, i] + t * draws.grad_log_likelihood[:, :, i]).reshape(-1, d)
        position = np.asarray(draws.position[:, :, i]).reshape(-1, d)
        phi.append(plug_in(np.ravel(draws.log_likelihood[:, :, i]), features(position, score, degree)))
    return np.stack(phi)


def posterior(model: Model, start: npt.ArrayLike, draws: int, seed: int) -> Evaluation:
    """Draw from a posterior with one mode, independently, by importance resampling; axes [draw].

    Population MCMC from the prior takes far longer to find the posterior of Goodwin's oscillator.
    """
    rng = np.random.default_rng(seed)
    state, log_weight = weighted(model, start, 4 * draws, rng)
    weight = np.exp(log_weight - log_weight.max())
    chosen = rng.choice(len(weight), draws, p=weight / weight.sum())
    return jax.tree.map(lambda a: np.asarray(a)[chosen], state)


def weighted(
    model: Model, start: npt.ArrayLike, number: int, rng: np.random.Generator
) -> tuple[Evaluation, npt.NDArray[np.float64]]:
    """Draw from Student's t around the posterior's mode, which Fisher scoring finds near the start.

    Returns:
        Evaluations with axes [draw], and logarithms of their importance weights. These average to the evidence if no
        other mode has any.
    """
    with_metric, at = _evaluations(model)
    mode = np.array(start, dtype=float)
    for _ in range(10):
        here = jax.tree.map(np.asarray, with_metric(jnp.asarray(mode)))
        precision = here.fisher + here.prior_curvature
        mode = mode + np.linalg.solve(precision, here.grad_log_prior + here.grad_log_likelihood)
    proposal = stats.multivariate_t(mode, np.linalg.inv(precision), df=5)
    position = proposal.rvs(number, random_state=rng)
    state = at(jnp.asarray(position))
    return state, np.asarray(state.log_prior + state.log_likelihood) - proposal.logpdf(position)


@cache
def _evaluations(model: Model) -> tuple[Callable[[Array], Evaluation], Callable[[Array], Evaluation]]:
    """Compile the evaluation of one point with its metric, and that of many without."""
    return jit()(partial(evaluate, model)), jit()(jax.vmap(partial(evaluate, replace(model, metric=None))))
