"""Control variates where they can be trusted: what is checked before and after they are fitted."""

from __future__ import annotations

import numpy as np

from thermint import diagnostics
from thermint.control.coefficients import Controlled, control, largest_z, mean_zero
from thermint.estimators.errors import batch_error, critical_value
from thermint.estimators.path_summary import PathSummary
from thermint.path.quadrature import RULES


def trusted_control(
    path: PathSummary, plain: Controlled, ess: np.ndarray, outside: float
) -> tuple[Controlled, list[str]]:
    """Control the targets, unless there is reason to think that the control variates do not have mean zero.

    Args:
        path: what is kept of the draws.
        plain: the targets without control.
        ess: effective sample size of g, [rung].
        outside: share of proposals beyond a border of the support.

    Returns:
        The controlled targets, or the plain ones, and warnings.
    """
    plan = path.plan
    if not plan.degree:
        return plain, []
    if outside and not plan.fixed:
        return plain, [
            f"control variates not used: {outside:.2%} of the proposals fell where prior or likelihood is zero. "
            "If the density jumps at that border, control variates would shift the answer. Write the parameter with a "
            "NumPyro distribution on its range, or give a degree if the density falls to zero smoothly."
        ]
    controlled = control(path.gram, plan.sizes, fixed=plan.fixed, crossfit=plan.crossfit)
    why_not = _not_mean_zero(path, plain, controlled, ess)
    if why_not:
        return plain, [
            f"control variates switched off: their averages should be zero but are {why_not}. Either the posterior "
            "density jumps somewhere (write a bounded parameter with a NumPyro distribution on its range), or a "
            "gradient is wrong, or the chains have not converged (increase draws)."
        ]
    return _with_light_tails(path, controlled, ess)


def _not_mean_zero(path: PathSummary, plain: Controlled, controlled: Controlled, ess: np.ndarray) -> str:
    """Test that control variates average to zero: feature by feature, rung by rung and over the path; "" if so."""
    plan = path.plan
    # Up to degree 2: averages of higher features are too far from normal to be tested by their batch errors.
    z, threshold = mean_zero(path.gram, plan.sizes[min(plan.degree, 2)], ess)
    if not np.all(z <= threshold):
        return _too_far(z, threshold, f"at rung {z.argmax()}")
    shift = plain.mean[..., :1] - controlled.mean[..., :1]
    explained = np.maximum(controlled.variance - controlled.residual, 1.0)[:, :1]  # 1: as in `mean_zero`
    z, threshold = largest_z(shift, 2 * explained / ess[:, None])
    if not np.all(z <= threshold):
        return _too_far(z, threshold, f"at rung {z.argmax()}")
    weights = RULES[plan.rule](path.ladder)[0] * np.asarray(path.gram.frame.spread)
    total = (shift[..., 0] * weights).sum(axis=-1)
    apart = batch_error(total)
    z = np.array([abs(total.mean()) / max(apart.error, 1e-300)])
    threshold = critical_value(2e-5, apart.degrees_of_freedom)
    return "" if np.all(z <= threshold) else _too_far(z, threshold, "over the whole path")


def _too_far(z: np.ndarray, threshold: float, where: str) -> str:
    return f"{z.max():.2g} standard errors away {where} (threshold {threshold:.2g})"


def _with_light_tails(path: PathSummary, controlled: Controlled, ess: np.ndarray) -> tuple[Controlled, list[str]]:
    """Lower the degree at rungs where features have a tail so heavy that they may have no variance."""

    def no_variance(rung: int, degree: int) -> bool:
        return diagnostics.tail(path.feature_norms[degree - 1, rung][None], ess[rung]).lacks_moment(2)

    degrees = controlled.degree.max(axis=1)
    lowered = degrees.copy()
    for rung in range(len(degrees)):
        while lowered[rung] and no_variance(rung, lowered[rung]):
            lowered[rung] -= 1
    changed = np.flatnonzero(lowered < degrees)
    if not len(changed):
        return controlled, []
    steps = ", ".join(dict.fromkeys(f"{degrees[rung]} to {lowered[rung]}" for rung in changed))
    warning = (
        f"degree lowered from {steps} at {diagnostics.rung_names(changed)}: features of the control variates have such "
        "heavy tails there that their variance may be infinite, and coefficients fitted to them mean nothing. Priors "
        "with lighter tails, or rungs farther from t = 0, allow a higher degree."
    )
    plan = path.plan
    return control(path.gram, plan.sizes, fixed=plan.fixed, crossfit=plan.crossfit, highest=lowered), [warning]
