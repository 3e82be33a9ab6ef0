"""From NumPyro distributions to a Model on the real line, and the check that a prior is normalised."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import cache

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.flatten_util import ravel_pytree
from numpyro import distributions as dist
from numpyro.distributions.transforms import biject_to
from scipy import stats

from thermint.model.model import Model
from thermint.runtime import keys
from thermint.runtime.programs import jit

DRAWS = 4000  # of the prior, by which it is checked
AT_ONCE = 128  # draws of the prior; one compiled program serves any number of them


def unconstrained(prior: Mapping[str, dist.Distribution], log_likelihood: Callable[[dict[str, Array]], Array]) -> Model:
    """Implement `Model.from_prior`."""
    if not prior:
        raise ValueError("prior is empty: give at least one parameter and its NumPyro distribution.")
    for name, distribution in prior.items():
        check_prior(name, distribution)
        _check_density(name, distribution)
    transforms = {name: biject_to(distribution.support) for name, distribution in prior.items()}

    def draw(key: Array) -> dict[str, Array]:
        keys = jax.random.split(key, len(prior))
        return {
            name: transforms[name].inv(distribution.sample(k).astype(float))
            for k, (name, distribution) in zip(keys, prior.items(), strict=True)
        }

    example = draw(jax.random.key(0))
    # ravel_pytree sorts dictionaries by key; a list keeps the order in which the user named the parameters.
    _, unravel = ravel_pytree([example[name] for name in prior])

    def named(theta: Array) -> dict[str, Array]:
        return dict(zip(prior, unravel(theta), strict=True))

    def constrain(theta: Array) -> dict[str, Array]:
        return {name: transforms[name](u) for name, u in named(theta).items()}

    def log_prior(theta: Array) -> Array:
        total = jnp.zeros(())
        for name, u in named(theta).items():
            value = transforms[name](u)
            total += jnp.sum(prior[name].log_prob(value))
            total += jnp.sum(transforms[name].log_abs_det_jacobian(u, value))
        return total

    return Model(
        log_likelihood=lambda theta: log_likelihood(constrain(theta)),
        log_prior=log_prior,
        sample_prior=lambda key: ravel_pytree(list(draw(key).values()))[0],
        constrain=constrain,
        normalised=True,
        names=tuple(f"{name}{index}" for name in prior for index in subscripts(example[name].shape)),
    )


def subscripts(shape: tuple[int, ...]) -> list[str]:
    """['[0]', '[1]', ...], or [''] for a scalar."""
    return [f"[{', '.join(map(str, index))}]" if shape else "" for index in np.ndindex(*shape)]


def _check_density(name: str, distribution: dist.Distribution) -> None:
    value = distribution.sample(jax.random.key(0))
    density = distribution.log_prob(value)
    if not np.all(np.isfinite(density)):
        raise ValueError(
            f"the prior of {name!r} ({type(distribution).__name__}) has log density {density} at its own draw {value}: "
            "check its parameters."
        )


def layers(distribution: dist.Distribution) -> list[dist.Distribution]:
    """Return the distribution and those that it wraps, from the outside in."""
    found = [distribution]
    while (inner := getattr(found[-1], "base_dist", None)) is not None:
        found.append(inner)
    return found


def check_prior(name: str, distribution: dist.Distribution) -> None:
    """Refuse what is no proper continuous prior on a support that the real line can be mapped to."""
    if not isinstance(distribution, dist.Distribution):
        raise ValueError(f"the prior of {name!r} is a {type(distribution).__name__}, not a NumPyro distribution.")
    for layer in layers(distribution):
        # A mask drops terms of the log density, which is how NumPyro writes flat priors.
        if isinstance(layer, dist.ImproperUniform | dist.MaskedDistribution | dist.Unit):
            raise ValueError(
                f"the prior of {name!r} ({type(layer).__name__}) is improper: it has no normalising constant, so the "
                "evidence is not defined. Use a proper distribution, wide if you know little."
            )
        if isinstance(layer, dist.Delta):
            raise ValueError(f"the prior of {name!r} is a point mass: use the constant itself instead.")
    if distribution.is_discrete:
        raise ValueError(
            f"the prior of {name!r} ({type(distribution).__name__}) is discrete: marginalise it, that is, sum over its "
            "values in the likelihood (a mixture distribution does that)."
        )
    try:
        biject_to(distribution.support)
    except NotImplementedError as error:
        raise ValueError(f"NumPyro knows no map from the real line to the support of {name!r}.") from error


@cache
def check_normalised(model: Model) -> None:
    """Refuse a prior whose density clearly does not integrate to one.

    In one dimension the density is integrated numerically. In up to ten, a narrow normal density r placed among prior
    draws is averaged over them: E[r(theta) / p(theta)] is 1 over the integral of p, if the draws come from p. That also
    notices a ``sample_prior`` that draws from something else. It stays silent where the average is too noisy to tell.
    """
    d = model.dimension
    if model.normalised:
        return
    if d == 1:
        total, noise = _integral(model)
    elif d <= 10:
        total, noise = _reciprocal_average(model)
    else:
        return
    if abs(np.log(total)) > 0.02 + 6 * noise:
        raise ValueError(
            f"log_prior is not normalised: exp(log_prior) integrates to about {total:.4g} instead of 1, which would "
            f"shift the log evidence by {np.log(total):.3g}. Subtract that constant from log_prior (or build the prior "
            "from NumPyro distributions with Model.from_prior), and check that sample_prior draws from the same prior."
        )


def check_factors(
    names: list[str], log_factors: Callable[[Array], Array], sample_prior: Callable[[Array], Array]
) -> None:
    """Refuse factors of the prior that change its total: their mean over the rest of the prior must be one.

    They are on the likelihood's side of the path, which then starts from the rest of the prior; the evidence is the
    same.
    """

    @jit()
    def log_values(keys: Array) -> Array:
        return jax.vmap(lambda key: log_factors(sample_prior(key)))(keys)

    values = np.exp(np.asarray(log_values(jax.random.split(jax.random.key(0), DRAWS))))
    mean, error = values.mean(), values.std() / np.sqrt(DRAWS)
    if not abs(mean - 1) < 0.02 + 6 * error:
        raise ValueError(
            f"the prior is not normalised: the mean of its factors ({', '.join(names)}) over the rest of the prior is "
            f"{mean:.4g} ± {error:.1g} instead of 1. Subtract the logarithm of that mean, if you know it exactly, or "
            "say 'likelihood'."
        )


def _integral(model: Model) -> tuple[float, float]:
    """Integrate a one-dimensional prior density numerically, with the relative error that halving the grid shows.

    The grid is uniform in asinh of the standardised value, dense in the middle and reaching far into the tails.
    """
    draws, _ = _prior_sample(model, 999)
    low, centre, high = np.quantile(draws, [0.25, 0.5, 0.75])
    u = np.linspace(-30.0, 30.0, 40001)
    x = centre + (high - low) * np.sinh(u)
    density = np.exp(np.asarray(_log_priors(x[:, None], model=model)))
    integrand = np.nan_to_num(density) * (high - low) * np.cosh(u)
    total, coarse = np.trapezoid(integrand, u), np.trapezoid(integrand[::2], u[::2])
    return float(total), abs(float(np.log(total / coarse)))


def _reciprocal_average(model: Model) -> tuple[float, float]:
    """Estimate the integral of exp(log_prior), with its relative standard error, from prior draws."""
    theta, log_p = _prior_sample(model, DRAWS)
    scaled = theta / np.subtract(*np.quantile(theta, [0.75, 0.25], axis=0))
    places = scaled[:200]
    square = np.sum(places**2, axis=1)[:, None] + np.sum(scaled**2, axis=1) - 2 * places @ scaled.T
    # The most crowded of 200 places: well inside the support, and inside one mode if there are several.
    centre = np.argmin(np.partition(square, 1000, axis=1)[:, 1000])
    near = theta[np.argsort(square[centre])[:1000]]
    log_r = stats.multivariate_normal.logpdf(theta, near.mean(axis=0), np.cov(near.T) / 2)
    ratio = np.exp(log_r - log_p)
    return float(1 / ratio.mean()), float(ratio.std() / ratio.mean() / np.sqrt(len(ratio)))


def _prior_sample(model: Model, number: int) -> tuple[np.ndarray, np.ndarray]:
    """Draw from the prior, [number, d], and evaluate its log density there, [number]."""
    theta = draw_prior(model, keys.split(keys.key(0), number))
    return theta, np.asarray(_log_priors(theta, model=model))


def draw_prior(model: Model, key: Array | np.ndarray) -> np.ndarray:
    """Draw once from the prior for every key, [..., d]; by a program that is the same for any number of them."""
    model = replace(model, metric=None, with_fisher=None)  # one program, whether a kernel needs these or not
    data = keys.key_data(key)
    flat = np.concatenate([data.reshape(-1, 2), np.zeros((-data.size // 2 % AT_ONCE, 2), dtype=data.dtype)])
    drawn = [np.asarray(_draw(part, model=model)) for part in np.split(flat, len(flat) // AT_ONCE)]
    return np.concatenate(drawn)[: data.size // 2].reshape(*data.shape[:-1], -1)


@jit()
def _log_priors(theta: Array, *, model: Model) -> Array:
    return jax.vmap(model.log_prior)(theta)


@jit(level=0)
def _draw(data: Array, *, model: Model) -> Array:
    return jax.vmap(lambda words: model.sample_prior(jax.random.wrap_key_data(words)).astype(float))(data)
