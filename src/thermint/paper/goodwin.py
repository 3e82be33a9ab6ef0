"""Goodwin's oscillator: nonlinear differential equations (paper, "A negative example" and its appendix).

With g species, of which the first two are observed,

    dx_1/ds = a1 / (1 + a2 x_g^10) - alpha x_1,   dx_(i+1)/ds = k_i x_i - alpha x_(i+1),   x(0) = 0,
    y_(j,i) ~ N(x_i(s_j), 0.1^2),   i = 1, 2,   s_j = 41, ..., 80,

and all g + 2 parameters a1, a2, k_1, ..., k_(g-1), alpha ~ Gamma(2, 1). Theta holds their logarithms. Data: simulated
from g = 3, a1 = 1, a2 = 3, k = (2, 1), alpha = 0.5. The equations are solved by diffrax (`pip install
"thermint[diffrax]"`), together with their sensitivities, so that value and gradient take one solve.
"""

from __future__ import annotations

import functools
import math
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.typing import ArrayLike
from numpy.typing import NDArray

from thermint.model.model import Model
from thermint.paper.tabulated import look_up, read

SIGMA = 0.1

# Measured at 200 posterior draws: the log likelihood is off by at most 5e-5, at prior draws by 3e-3 (or 3e-6 of it).
RTOL, ATOL = 1e-7, 1e-8
MAX_STEPS = 4096  # none of 80 000 prior draws needs 3072; wild proposals, which hold up their whole batch, stop here
DT_MIN = 1e-10  # where NaN and overflow give up, long before MAX_STEPS

# Importance sampling with 6e5 draws, standard error 0.0011 each.
LOG_EVIDENCE = {3: 59.8194, 4: 44.4172}


class Likelihood(NamedTuple):
    """What one solution of the equations and their sensitivities gives."""

    value: Array  # []
    gradient: Array  # [d]
    fisher: Array  # [d, d]


@functools.cache
def _data() -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Load the times s[n] and the observations y[n, 2]."""
    table = np.ascontiguousarray(read("goodwin_g3"))
    return table[:, 0], table[:, 1:]


def _velocity(x: Array, parameters: Array) -> Array:
    """Right-hand side of the equations, dx/ds[g]."""
    a1, a2, k, alpha = parameters[0], parameters[1], parameters[2:-1], parameters[-1]
    # An integer power: the solver may make a tiny negative x, for which exp(10 log x) is NaN.
    synthesis = jnp.append(a1 / (1 + a2 * x[-1] ** 10), k * x[:-1])
    return synthesis - alpha * x


def _velocities(s: ArrayLike, state: Array, parameters: Array) -> Array:
    """Right-hand side of equations and sensitivities (paper, Eqn. "sense ode"), for a state [g, 1 or 1 + d], raveled.

    The first column is x. The others, if any, are its derivatives with respect to theta, the log parameters.
    """
    columns = state.reshape(len(parameters) - 2, -1)
    dx, linear = jax.linearize(_velocity, columns[:, 0], parameters)
    if columns.shape[1] == 1:
        return dx
    sensitivities = jax.vmap(linear, (1, 1), 1)(columns[:, 1:], jnp.diag(parameters))
    return jnp.column_stack([dx, sensitivities]).ravel()


def _solve(theta: Array, columns: int, rtol: float, atol: float, max_steps: int) -> tuple[Array, Array]:
    """Observed species at the observed times, [n, 2, columns], and whether the solver arrived."""
    import diffrax

    g = len(theta) - 2
    times = _data()[0]

    def size(error: Array) -> Array:
        # Of x alone: steps, and so the log likelihood, are the same with and without sensitivities, which are then
        # the exact derivatives of the numerical solution for fixed steps.
        return jnp.sqrt(jnp.mean(error[::columns] ** 2))

    solution = diffrax.diffeqsolve(
        diffrax.ODETerm(_velocities),
        diffrax.Tsit5(),
        t0=0.0,
        t1=times[-1],
        dt0=0.01,
        y0=jnp.zeros(g * columns),  # flat: as a matrix, batches took up to three times as long on a CPU
        args=jnp.exp(theta),
        saveat=diffrax.SaveAt(ts=jnp.asarray(times), fn=lambda s, state, parameters: state[: 2 * columns]),
        stepsize_controller=diffrax.PIDController(rtol=rtol, atol=atol, norm=size, dtmin=DT_MIN),
        adjoint=diffrax.ForwardMode(),  # plain loops, the fastest to compile and run
        max_steps=max_steps,
        throw=False,
    )
    return solution.ys.reshape(-1, 2, columns), solution.result == diffrax.RESULTS.successful


def likelihood(theta: Array, *, rtol: float = RTOL, atol: float = ATOL, max_steps: int = MAX_STEPS) -> Likelihood:
    """Log likelihood, its gradient and the Fisher information from one solution of equations and sensitivities.

    Where the solver fails with these tolerances and steps, they are -inf and zeros.
    """
    states, arrived = _solve(theta, 1 + len(theta), rtol, atol, max_steps)
    residual, sensitivities = _data()[1] - states[:, :, 0], states[:, :, 1:]
    parts = Likelihood(
        _log_density(states[:, :, 0]),
        jnp.einsum("nid,ni->d", sensitivities, residual) / SIGMA**2,
        jnp.einsum("nid,nie->de", sensitivities, sensitivities) / SIGMA**2,
    )
    fine = functools.reduce(jnp.logical_and, [jnp.all(jnp.isfinite(part)) for part in parts], arrived)
    failed = Likelihood(jnp.array(-jnp.inf), jnp.zeros_like(parts.gradient), jnp.zeros_like(parts.fisher))
    return jax.tree.map(lambda part, otherwise: jnp.where(fine, part, otherwise), parts, failed)


def _log_density(x: Array) -> Array:
    y = _data()[1]
    return -jnp.sum((x - y) ** 2) / (2 * SIGMA**2) - y.size * math.log(SIGMA * math.sqrt(2 * math.pi))


@jax.custom_jvp
def _with_fisher(theta: Array) -> tuple[Array, Array]:
    value, _, fisher = likelihood(theta)
    return value, fisher


@_with_fisher.defjvp
def _with_fisher_jvp(primals: tuple[Array], tangents: tuple[Array]) -> tuple[tuple[Array, Array], tuple[Array, Array]]:
    # Linear in the tangent with a gradient already known: JAX transposes it for value_and_grad without a second solve.
    # Nobody differentiates the Fisher information.
    value, gradient, fisher = likelihood(*primals)
    return (value, fisher), (gradient @ tangents[0], jnp.full_like(fisher, jnp.nan))


@jax.custom_jvp
def _log_likelihood(theta: Array) -> Array:
    states, arrived = _solve(theta, 1, RTOL, ATOL, MAX_STEPS)
    value = _log_density(states[:, :, 0])
    return jnp.where(arrived & jnp.isfinite(value), value, -jnp.inf)


@_log_likelihood.defjvp
def _log_likelihood_jvp(primals: tuple[Array], tangents: tuple[Array]) -> tuple[Array, Array]:
    (value, _), (tangent, _) = jax.jvp(_with_fisher, primals, tangents)
    return value, tangent


def model(g: int, metric: bool = True) -> Model:
    """Build the oscillator with g species.

    Args:
        g: 3, as the data were made, or 4.
        metric: give the model its metric, for `kernels.mmala`. It comes from the solution that gives the gradient.

    Returns:
        A Model of theta = log(a1, a2, k_1, ..., k_(g-1), alpha); the same object for the same arguments, so that
        compiled programs are reused. Where the equations cannot be solved, its log likelihood is -inf.

    Raises:
        ImportError: diffrax is not installed.
    """
    look_up(LOG_EVIDENCE, g, "g, the number of species,")
    try:
        import diffrax  # noqa: F401
    except ModuleNotFoundError as error:
        if error.name != "diffrax":
            raise
        raise ImportError(
            'Goodwin\'s oscillator needs diffrax, which is not installed: pip install "thermint[diffrax]".'
        ) from error
    return _model(g, metric)


@functools.cache
def _model(g: int, with_metric: bool) -> Model:
    names = ("a1", "a2", *(f"k{i}" for i in range(1, g)), "alpha")

    def log_prior(theta: Array) -> Array:
        return jnp.sum(2 * theta - jnp.exp(theta))  # Gamma(2, 1) has density p e^-p, and dp = e^theta dtheta

    def sample_prior(key: Array) -> Array:
        return jax.random.loggamma(key, 2.0, (g + 2,))

    def metric(theta: Array) -> tuple[Array, Array]:  # Supplement
        return likelihood(theta).fisher, jnp.diag(jnp.exp(theta))

    def constrain(theta: Array) -> dict[str, Array]:
        return dict(zip(names, jnp.exp(theta), strict=True))

    return Model(
        _log_likelihood,
        log_prior,
        sample_prior,
        metric=metric if with_metric else None,
        with_fisher=_with_fisher if with_metric else None,
        constrain=constrain,
        names=tuple(f"log_{name}" for name in names),
    )


def log_evidence(g: int) -> float:
    """Log evidence with g species by importance sampling, computed beforehand; its standard error is 0.0011."""
    return look_up(LOG_EVIDENCE, g, "g, the number of species,")
