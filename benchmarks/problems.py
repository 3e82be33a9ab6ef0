"""Test problems with known log evidence, and the long runs behind those that have no closed form.

``python -m benchmarks.problems`` recomputes the numerical truths (a few minutes), with ``--quick`` roughly. Two methods
must agree with each other and with the stored number. Both use the same Student-t proposal, fitted to the
posterior's mean and covariance, and the posterior symmetrised about the proposal's centre, whose evidence is the same:
importance sampling at quasi-random points, and bridge sampling (Meng and Wong, 1996) between the proposal and NUTS
draws.
"""

from __future__ import annotations

import argparse
import functools
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
from jax import Array
from jax.scipy.special import logsumexp
from numpy.typing import ArrayLike, NDArray
from numpyro.infer import MCMC, NUTS
from scipy import optimize, special, stats

from thermint import Model
from thermint.paper import pima as paper_pima
from thermint.paper import radiata as paper_radiata

TWO_METHODS = "importance sampling; bridge sampling agrees"
GRID = "numerical integration"
# Log evidence and standard error by importance sampling: 4e6 pairs of random draws, 8e6 of quasi-random ones. Bridge
# sampling from NUTS chains of 100 000 and 250 000 draws gave -1262.16291 ± 0.00071 and -179.72970 ± 0.00047.
LOGISTIC_TRUTH = {(50, 2000): (-1262.16279, 1.3e-4)}
STUDENT_TRUTH = (-179.729694, 5e-6)
SCRAMBLES = 16  # of quasi-random points, independent of each other
BATCH = 256  # evaluations in one compiled step: enough to be fast, few enough to stay in the cache


class Problem(NamedTuple):
    """A model, its log evidence, the standard error of that number (0 if exact), and where it comes from."""

    name: str
    model: Model
    log_evidence: float
    truth_error: float
    how: str


@functools.cache
def linear(d: int, n: int, metric: bool = True) -> Problem:
    """Linear regression, simulated: X[n, d] standard normal, beta ~ N(0, I), y ~ N(X beta, I)."""
    rng = np.random.default_rng(d)
    X = rng.standard_normal((n, d))
    y = X @ rng.standard_normal(d) + rng.standard_normal(n)
    return _regression(f"linear-{d}" + ("" if metric else "-without-metric"), X, y, metric)


@functools.cache
def correlated(d: int = 5, n: int = 50) -> Problem:
    """Linear regression whose columns hardly differ: the posterior is wide but for one narrow direction."""
    rng = np.random.default_rng(7)
    X = rng.standard_normal((n, 1)) + 0.03 * rng.standard_normal((n, d))
    return _regression("correlated", X, X.sum(axis=1) + rng.standard_normal(n))


def _regression(name: str, X: NDArray, y: NDArray, metric: bool = True) -> Problem:
    """Linear regression with beta ~ N(0, I) and y ~ N(X beta, I)."""
    n, d = X.shape
    X_transposed, XX = X.T.copy(), X.T @ X

    def log_likelihood(beta: Array) -> Array:
        return -n / 2 * np.log(2 * np.pi) - jnp.sum((y - beta @ X_transposed) ** 2) / 2

    def fisher_and_curvature(beta: Array) -> tuple[Array, Array]:
        return jnp.asarray(XX), jnp.eye(d)

    # Completing the square: y'y - y'X A^-1 X'y with A = I + X'X.
    A = np.eye(d) + XX
    Xy = X.T @ y
    quadratic = y @ y - Xy @ np.linalg.solve(A, Xy)
    truth = -n / 2 * np.log(2 * np.pi) - np.linalg.slogdet(A)[1] / 2 - quadratic / 2
    model = Model(log_likelihood, *_normal_prior(d), metric=fisher_and_curvature if metric else None, normalised=True)
    return Problem(name, model, float(truth), 0.0, "closed form")


@functools.cache
def logistic(d: int = 50, n: int = 2000) -> Problem:
    """Logistic regression, simulated: X[n, d] ~ N(0, 1/d), beta ~ N(0, I), so that the logits are about N(0, 1)."""
    if (d, n) not in LOGISTIC_TRUTH:
        raise ValueError(f"the log evidence is known for (d, n) in {list(LOGISTIC_TRUTH)}, not for {(d, n)}.")
    rng = np.random.default_rng(d)
    X = rng.standard_normal((n, d)) / np.sqrt(d)
    y = (rng.random(n) < special.expit(X @ rng.standard_normal(d))).astype(float)
    # Fast in batches: see thermint.paper.pima. The products of X's columns, each pair once, make the metric one matrix
    # product for a whole batch, 3 to 4 times faster than X' diag(p (1 - p)) X point by point.
    X_transposed, Xy = X.T.copy(), X.T @ y
    row, column = np.triu_indices(d)
    products = X[:, row] * X[:, column]
    unpack = np.zeros((d, d), dtype=int)
    unpack[row, column] = unpack[column, row] = np.arange(len(row))

    def exp_minus_abs(eta: Array) -> Array:
        return jnp.exp(jnp.where(eta > 0, -eta, eta))

    def log_likelihood(beta: Array) -> Array:
        eta = beta @ X_transposed
        return beta @ Xy - jnp.sum(jnp.where(eta > 0, eta, 0) + jnp.log1p(exp_minus_abs(eta)))

    def metric(beta: Array) -> tuple[Array, Array]:
        e = exp_minus_abs(beta @ X_transposed)
        return (e / (1 + e) ** 2 @ products)[unpack], jnp.eye(d)

    model = Model(log_likelihood, *_normal_prior(d), metric=metric, normalised=True)
    return Problem(f"logistic-{d}", model, *LOGISTIC_TRUTH[d, n], TWO_METHODS)


@functools.cache
def student_regression() -> Problem:
    """Regression of 100 values with Student-t noise (4 degrees of freedom): 5 coefficients and the noise's scale."""
    n, d, dof = 100, 5, 4
    rng = np.random.default_rng(4)
    X = rng.standard_normal((n, d))
    noise = rng.standard_normal(n) / np.sqrt(np.mean(rng.standard_normal((dof, n)) ** 2, axis=0))
    y = X @ rng.standard_normal(d) + noise
    X_transposed = X.T.copy()

    def log_likelihood(p: dict[str, Array]) -> Array:
        return dist.StudentT(dof, p["beta"] @ X_transposed, p["scale"]).log_prob(y).sum()

    prior = {"beta": dist.Normal(0.0, 2.5).expand([d]), "scale": dist.HalfCauchy(1.0)}
    return Problem("student", Model.from_prior(prior, log_likelihood), *STUDENT_TRUTH, TWO_METHODS)


@functools.cache
def skewed() -> Problem:
    """Four rates with Gamma(1.5, 1) priors, each seen in one Poisson count: posteriors of log rates are log-gamma."""
    y, shape = np.array([0.0, 1.0, 2.0, 4.0]), 1.5
    prior = {"rate": dist.Gamma(shape, 1.0).expand([len(y)])}
    model = Model.from_prior(prior, lambda p: dist.Poisson(p["rate"]).log_prob(y).sum())
    truth = special.gammaln(shape + y) - special.gammaln(shape) - special.gammaln(1 + y) - (shape + y) * np.log(2)
    return Problem("skewed", model, float(truth.sum()), 0.0, "closed form")


@functools.cache
def bounded() -> Problem:
    """Three positive means with half-normal priors, and data that would rather have them negative."""
    y = np.array([-0.5, -0.2, 0.1])[:, None] + 0.3 * np.linspace(-1, 1, 10)
    prior = {"mean": dist.HalfNormal(1.0).expand([3])}
    model = Model.from_prior(prior, lambda p: dist.Normal(p["mean"][:, None], 1.0).log_prob(y).sum())
    # Without the bound: normal posteriors of variance 1 / (n + 1). It leaves a part of them, and half of the prior.
    n, total = y.shape[1], y.sum(axis=1)
    normal = stats.norm.logpdf(y).sum(axis=1) + total**2 / (2 * (n + 1)) - np.log(n + 1) / 2
    truth = normal + stats.norm.logcdf(total / np.sqrt(n + 1)) + np.log(2)
    return Problem("bounded", model, float(truth.sum()), 0.0, "closed form")


@functools.cache
def schools() -> Problem:
    """Eight schools (Rubin 1981), non-centred, with a half-Cauchy scale."""
    effect = np.array([28.0, 8.0, -3.0, 7.0, -1.0, 1.0, 18.0, 12.0])
    error = np.array([15.0, 10.0, 16.0, 11.0, 9.0, 11.0, 10.0, 18.0])
    prior = {"mean": dist.Normal(0, 5), "scale": dist.HalfCauchy(5), "standard": dist.Normal(0, 1).expand([8])}

    def log_likelihood(p: dict[str, Array]) -> Array:
        return dist.Normal(p["mean"] + p["scale"] * p["standard"], error).log_prob(effect).sum()

    mean, angle = np.linspace(-40, 40, 1601)[:, None], np.linspace(0, np.pi / 2, 2002)[:-1]
    scale = 5 * np.tan(angle)  # whose half-Cauchy prior is uniform in the angle
    density = stats.norm.logpdf(mean, 0, 5) - np.log(np.pi / 2)
    density = density + sum(stats.norm.logpdf(y, mean, np.hypot(s, scale)) for y, s in zip(effect, error, strict=True))
    return Problem("schools", Model.from_prior(prior, log_likelihood), _integral(density, mean, angle), 0.0, GRID)


@functools.cache
def random_effects() -> Problem:
    """Ten Poisson counts whose log rates scatter about a mean, with a half-normal scale."""
    y = np.array([0.0, 3.0, 1.0, 9.0, 2.0, 0.0, 5.0, 1.0, 4.0, 2.0])
    prior = {"mean": dist.Normal(0, 2), "scale": dist.HalfNormal(1), "standard": dist.Normal(0, 1).expand([len(y)])}

    def log_likelihood(p: dict[str, Array]) -> Array:
        return dist.Poisson(jnp.exp(p["mean"] + p["scale"] * p["standard"])).log_prob(y).sum()

    # A scale and its negative are alike: a normal prior on both, which a grid integrates to rounding.
    mean, scale = np.linspace(-8, 8, 161)[:, None], np.linspace(-6, 6, 161)
    node, weight = np.polynomial.hermite_e.hermegauss(100)
    rate = np.exp(mean[..., None] + scale[:, None] * node)
    density = stats.norm.logpdf(mean, 0, 2) + stats.norm.logpdf(scale)
    for count in y:
        terms = special.xlogy(count, rate) - rate - special.gammaln(count + 1)
        density = density + special.logsumexp(terms + np.log(weight / weight.sum()), axis=-1)
    model = Model.from_prior(prior, log_likelihood)
    return Problem("random-effects", model, _integral(density, mean, scale), 0.0, GRID)


@functools.cache
def banana() -> Problem:
    """Rosenbrock's: a near 1, b near a^2; priors N(0, 3^2) and N(0, 10^2)."""
    narrow = 0.3
    prior = {"a": dist.Normal(0, 3), "b": dist.Normal(0, 10)}

    def log_likelihood(p: dict[str, Array]) -> Array:
        return dist.Normal(p["a"], 1.0).log_prob(1.0) + dist.Normal(p["b"], narrow).log_prob(p["a"] ** 2)

    a = np.linspace(-8, 10, 20_001)  # b is integrated by hand
    density = stats.norm.logpdf(a, 0, 3) + stats.norm.logpdf(a, 1, 1) + stats.norm.logpdf(a**2, 0, np.hypot(10, narrow))
    truth = float(np.log(np.trapezoid(np.exp(density), a)))
    return Problem("banana", Model.from_prior(prior, log_likelihood), truth, 0.0, GRID)


def _integral(log_density: NDArray, x: NDArray, y: NDArray) -> float:
    """Log of the integral of a density on a grid, [x, y]."""
    top = log_density.max()
    return float(top + np.log(np.trapezoid(np.trapezoid(np.exp(log_density - top), y), x.ravel())))


@functools.cache
def two_modes(d: int = 8) -> Problem:
    """Two normals of unequal weight and width, at -4 and 4 in every coordinate; prior N(0, 5^2 I)."""
    centres = np.outer([-4.0, 4.0], np.ones(d))
    return _mixture("two-modes", [0.3, 0.7], centres, [0.5, 1.0], prior_scale=5.0)


@functools.cache
def four_modes(d: int = 4) -> Problem:
    """Four normals of unequal weight and width, at (-6, -2, 2, 6) and its rotations; prior N(0, 5^2 I)."""
    centres = np.array([np.roll([-6.0, -2.0, 2.0, 6.0], -k)[np.arange(d) % 4] for k in range(4)])
    return _mixture("four-modes", [0.1, 0.2, 0.3, 0.4], centres, [0.4, 0.6, 0.5, 1.0], prior_scale=5.0)


@functools.cache
def needle(d: int = 5) -> Problem:
    """A narrow normal with nine tenths of the evidence on top of a broad one, beside its centre; prior N(0, 5^2 I).

    It is higher than the broad one within 0.4 only (d = 5), where one in 2500 draws from the broad one falls: uphill
    from elsewhere is the centre of the broad one. Place and width were chosen so that nested samplers, whose live
    points close in on that centre, tend to meet it: dynesty and UltraNest did, thermint in 4 runs of 10.
    """
    centres = np.stack([np.zeros(d), np.full(d, 0.25)])
    return _mixture("needle", [0.1, 0.9], centres, [1.0, 0.07], prior_scale=5.0)


@functools.cache
def eggbox() -> Problem:
    """Nested sampling's eggbox, 18 equal modes: log L = (2 + cos(x/2) cos(y/2))^5 for x and y uniform on (0, 10 pi)."""
    side = 10 * np.pi
    prior = {"x": dist.Uniform(0, side), "y": dist.Uniform(0, side)}

    def log_likelihood(p: dict[str, Array]) -> Array:
        return (2 + jnp.cos(p["x"] / 2) * jnp.cos(p["y"] / 2)) ** 5

    # Its mirror images at the borders continue it smoothly, so that the trapezoid rule is exact to rounding.
    x, y = np.linspace(0, side, 2001)[:, None], np.linspace(0, side, 2001)
    truth = _integral((2 + np.cos(x / 2) * np.cos(y / 2)) ** 5, x, y) - 2 * np.log(side)
    return Problem("eggbox", Model.from_prior(prior, log_likelihood), truth, 0.0, GRID)


def _mixture(name: str, weights: ArrayLike, centres: NDArray, widths: ArrayLike, prior_scale: float) -> Problem:
    """Likelihood sum_k w_k N(theta; m_k, s_k^2 I), prior N(0, s^2 I): Z = sum_k w_k N(m_k; 0, (s_k^2 + s^2) I)."""
    d = centres.shape[1]
    w, s = np.asarray(weights), np.asarray(widths)

    def log_likelihood(theta: Array) -> Array:
        square = jnp.sum((theta - centres) ** 2, axis=1)
        return logsumexp(np.log(w) - d / 2 * np.log(2 * np.pi * s**2) - square / (2 * s**2))

    total = s**2 + prior_scale**2
    truth = special.logsumexp(np.log(w) - d / 2 * np.log(2 * np.pi * total) - np.sum(centres**2, axis=1) / (2 * total))
    model = Model(log_likelihood, *_normal_prior(d, prior_scale), normalised=True)
    return Problem(name, model, float(truth), 0.0, "closed form")


def radiata(k: int) -> Problem:
    """Radiata pine, model k of the paper, on Williams' own data."""
    return Problem(f"radiata-{k}", paper_radiata.model(k), paper_radiata.log_evidence(k), 0.0, "closed form")


def pima(k: int) -> Problem:
    """Pima Indians, model k of the paper."""
    return Problem(f"pima-{k}", paper_pima.model(k), paper_pima.log_evidence(k), 1e-8, "Gauss-Hermite quadrature")


def goodwin(g: int) -> Problem:
    """Goodwin's oscillator with g species, as in the paper."""
    from thermint.paper import goodwin as paper_goodwin

    # 6e5 draws gave 59.8194 and 44.4172, each ± 0.0011; 8e5 and 6e5 draws of `benchmarks.truth` gave 59.8171 and
    # 44.4146, each ± 0.0007. This is their weighted mean.
    truth = {3: 59.8178, 4: 44.4153}[g]
    return Problem(f"goodwin-{g}", paper_goodwin.model(g), truth, 0.0006, "importance sampling, twice")


PROBLEMS: dict[str, Callable[[], Problem]] = {
    "pima-1": lambda: pima(1),
    "pima-2": lambda: pima(2),
    "radiata-1": lambda: radiata(1),
    "radiata-2": lambda: radiata(2),
    "linear-20": lambda: linear(20, 100),
    "linear-50": lambda: linear(50, 200),
    "logistic-50": lambda: logistic(50, 2000),
    "goodwin-3": lambda: goodwin(3),
    "goodwin-4": lambda: goodwin(4),
    "two-modes": lambda: two_modes(),
    "four-modes": lambda: four_modes(),
    "student": lambda: student_regression(),
    "linear-3": lambda: linear(3, 30),
    "correlated": correlated,
    "skewed": skewed,
    "bounded": bounded,
    "schools": schools,
    "random-effects": random_effects,
    "banana": banana,
    "eggbox": eggbox,
    "needle": lambda: needle(),
}


def _normal_prior(d: int, scale: float = 1.0) -> tuple[Callable[[Array], Array], Callable[[Array], Array]]:
    """Return log density and sampler of N(0, scale^2 I)."""

    def log_prior(theta: Array) -> Array:
        return -d / 2 * np.log(2 * np.pi * scale**2) - jnp.sum(theta**2) / (2 * scale**2)

    return log_prior, lambda key: scale * jax.random.normal(key, (d,))


class Estimate(NamedTuple):
    """A log evidence and its standard error."""

    value: float
    error: float


class Proposal(NamedTuple):
    """theta = mean + factor z, where z is standard Student-t with twice as many degrees of freedom as dimensions.

    That is close to normal, and yet bounds the ratio of the posterior to it.
    """

    mean: Array  # [d]
    factor: Array  # [d, d], lower triangular


def numerical_truth(model: Model, draws: int, chain: int, seed: int = 0) -> tuple[Estimate, Estimate]:
    """Log evidence of a model with one mode, by importance sampling and by bridge sampling.

    Args:
        model: any Model whose posterior has one mode and lighter tails than a Student-t distribution.
        draws: from the proposal, for importance sampling: `SCRAMBLES` times a power of two, the next below; a tenth of
            that, at least 20 000, for fitting the proposal.
        chain: length of the NUTS chain for bridge sampling, which takes as many new draws from the proposal.
        seed: of all randomness.
    """
    fit_key, bridge_key, chain_key = jax.random.split(jax.random.key(seed), 3)
    proposal = _fit(model, max(draws // 10, 20_000), fit_key)
    scrambles = [_quasi_random(model.dimension, draws // SCRAMBLES, seed + i) for i in range(SCRAMBLES)]
    ratios = np.stack([_log_ratios(model, proposal, batches) for batches in scrambles])
    others = _log_ratios(model, proposal, _draws(model.dimension, chain, bridge_key))
    return importance(ratios), bridge(_log_ratios(model, proposal, _chain(model, proposal, chain, chain_key)), others)


def importance(log_ratios: NDArray) -> Estimate:
    """Log of the mean of ratios, target over proposal, in independent rows."""
    means = special.logsumexp(log_ratios, axis=1) - np.log(log_ratios.shape[1])
    shift = means.max()
    weights = np.exp(means - shift)
    error = weights.std(ddof=1) / weights.mean() / np.sqrt(len(weights))
    return Estimate(float(shift + np.log(weights.mean())), float(error))


def bridge(chain: NDArray, independent: NDArray, batches: int = 50) -> Estimate:
    """Bridge sampling with the optimal bridge, by Meng and Wong's fixed point.

    Args:
        chain: log ratios r, target over proposal, at (correlated) draws from the target.
        independent: the same at independent draws from the proposal.
        batches: of the chain, for the error.

    Raises:
        RuntimeError: the fixed point is not reached.
    """
    share = len(chain) / (len(chain) + len(independent))
    log_z = np.median(chain)
    for _ in range(1000):
        # Z = E_proposal[r h] / E_target[h], with the bridge h = 1 / (share * r / Z + 1 - share).
        numerator = 1 / (share + (1 - share) * np.exp(log_z - independent))
        denominator = 1 / (share * np.exp(chain - log_z) + (1 - share))
        step = np.log(numerator.mean() / denominator.mean())
        log_z += step
        if abs(step) < 1e-10:
            break
    else:
        raise RuntimeError("bridge sampling did not converge: target and proposal hardly overlap.")
    means = denominator[: len(chain) // batches * batches].reshape(batches, -1).mean(axis=1)
    errors = (
        numerator.std() / numerator.mean() / np.sqrt(len(numerator)),
        means.std(ddof=1) / means.mean() / np.sqrt(batches),
    )
    return Estimate(float(log_z), float(np.hypot(*errors)))


def _log_posterior(model: Model, theta: Array) -> Array:
    return model.log_likelihood(theta) + model.log_prior(theta)


def _log_proposal(proposal: Proposal, z: Array) -> Array:
    """Log density of theta = mean + factor z."""
    d = z.size
    constant = stats.multivariate_t.logpdf(np.zeros(d), df=2 * d, shape=np.eye(d))
    log_volume = jnp.sum(jnp.log(jnp.diag(proposal.factor)))
    return jnp.asarray(constant - log_volume - 3 * d / 2 * jnp.log1p(z @ z / (2 * d)))


@functools.cache
def _compiled(model: Model, function: Callable[..., Any]) -> Callable[..., Any]:
    """Compile function(model, proposal, z) for batches of z."""
    return jax.jit(jax.vmap(functools.partial(function, model), in_axes=(None, 0)))


def _weighted(model: Model, proposal: Proposal, z: Array) -> tuple[Array, Array]:
    """Return theta, and the log of posterior over proposal."""
    theta = proposal.mean + z @ proposal.factor.T
    return theta, _log_posterior(model, theta) - _log_proposal(proposal, z)


def _log_ratio(model: Model, proposal: Proposal, z: Array) -> Array:
    """Log of symmetrised posterior over proposal: the mean over z and -z, since what the fit misses is mostly odd."""
    return jnp.logaddexp(_weighted(model, proposal, z)[1], _weighted(model, proposal, -z)[1]) - np.log(2)


def _log_ratios(model: Model, proposal: Proposal, batches: Iterable[Array]) -> NDArray[np.float64]:
    return np.concatenate([_compiled(model, _log_ratio)(proposal, z) for z in batches])


@functools.partial(jax.jit, static_argnums=0)
def _draw(d: int, key: Array, number: int) -> Array:
    """Draw batch ``number`` of z: normal over the root of chi^2 / (2 d), which is a mean of d exponentials."""
    normal_key, chi_key = jax.random.split(jax.random.fold_in(key, number))
    chi = jnp.mean(jax.random.exponential(chi_key, (BATCH, d)), axis=1, keepdims=True)
    return jax.random.normal(normal_key, (BATCH, d)) / jnp.sqrt(chi)


def _quasi_random(d: int, number: int, seed: int) -> Iterator[Array]:
    """Make z at scrambled Sobol points, as many as the largest power of two in ``number``, in batches."""
    u = stats.qmc.Sobol(d + 1, rng=seed).random_base2(int(np.log2(number)))
    u = np.clip(u, 1e-12, 1 - 1e-12)
    chi = special.gammaincinv(d, u[:, d:]) / d
    return (jnp.asarray(z) for z in np.split(special.ndtri(u[:, :d]) / np.sqrt(chi), -(-len(u) // BATCH)))


def _draws(d: int, number: int, key: Array) -> Iterator[Array]:
    """Draw z from the proposal, in batches."""
    return (_draw(d, key, i) for i in range(-(-number // BATCH)))


def _chain(model: Model, proposal: Proposal, length: int, key: Array) -> Array:
    """Run NUTS in the coordinates z, where the posterior is nearly standard normal; the result is in batches."""

    def potential(z: Array) -> Array:
        return -_log_posterior(model, proposal.mean + z @ proposal.factor.T)

    d = model.dimension
    kernel = NUTS(potential_fn=potential, adapt_mass_matrix=False)
    mcmc = MCMC(kernel, num_warmup=500, num_samples=-(-length // BATCH) * BATCH, progress_bar=False)
    mcmc.run(key, init_params=jnp.zeros(d))
    return mcmc.get_samples().reshape(-1, BATCH, d)


def _fit(model: Model, draws: int, key: Array, rounds: int = 2) -> Proposal:
    """Start from the Laplace approximation and match mean and covariance by importance sampling."""

    def loss(theta: Array) -> Array:
        return -_log_posterior(model, theta)

    start, hessian = np.zeros(model.dimension), jax.jit(jax.hessian(loss))
    mode = optimize.minimize(jax.jit(loss), start, jac=jax.jit(jax.grad(loss)), hess=hessian, method="trust-exact").x
    proposal = Proposal(jnp.asarray(mode), jnp.linalg.cholesky(jnp.linalg.inv(hessian(mode))))

    for i in range(rounds):
        round_key = jax.random.fold_in(key, i)
        batches = [_compiled(model, _weighted)(proposal, z) for z in _draws(model.dimension, draws, round_key)]
        theta, log_w = (np.concatenate(part) for part in zip(*batches, strict=True))
        w = special.softmax(log_w)
        covariance = np.cov(theta.T, aweights=w, ddof=0)
        proposal = Proposal(jnp.asarray(w @ theta), jnp.linalg.cholesky(jnp.asarray(covariance)))
    return proposal


# Draws from the proposal and length of the chain.
EFFORT = {"logistic-50": (4_000_000, 100_000), "student": (2**23, 250_000)}
QUICK_EFFORT = {"logistic-50": (20_000, 1_000), "student": (50_000, 2_000)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--quick", action="store_true", help="rough, in less than 20 seconds")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    agree = True
    for name, (draws, chain) in (QUICK_EFFORT if options.quick else EFFORT).items():
        begin = time.perf_counter()
        problem = PROBLEMS[name]()
        estimates = numerical_truth(problem.model, draws, chain, options.seed)
        stored = Estimate(problem.log_evidence, problem.truth_error)
        first, second = estimates
        print(f"{name}: {draws} draws, chain of {chain}, {time.perf_counter() - begin:.0f} s")
        for method, estimate in zip(("stored", "importance", "bridge"), (stored, first, second), strict=True):
            print(f"  {method:<10} {estimate.value:.6f} ± {estimate.error:.6f}")
        pairs = ((first, second), (first, stored), (second, stored))
        agree &= all(abs(a.value - b.value) < 4 * np.hypot(a.error, b.error) for a, b in pairs)
    print("all agree within 4 standard errors" if agree else "DISAGREEMENT by more than 4 standard errors")
    sys.exit(not agree)


if __name__ == "__main__":
    main()
