"""NumPyro models: observed sites are the likelihood, all others the prior."""

from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
from jax import Array
from jax.flatten_util import ravel_pytree
from numpyro import distributions as dist
from numpyro import handlers
from numpyro.distributions.transforms import biject_to

from thermint.interop import fisher, logistic
from thermint.model.model import Model
from thermint.model.priors import check_factors, check_prior, layers, subscripts
from thermint.runtime.programs import jit

Site = dict[str, Any]
Side = Literal["prior", "likelihood"]

JACOBIAN = "_log_jacobian"  # of a site's map from the real line, recorded as a factor


def from_numpyro(
    model: Callable[..., Any], *args: Any, factors: Mapping[str, Side] | None = None, **kwargs: Any
) -> Model:
    """Build a Model from a NumPyro model: its observed sites are the likelihood, its other sites the prior.

    Constrained sites are mapped to the real line by NumPyro's bijections, and the Jacobian is part of the prior.
    Plates, deterministic sites, `handlers.reparam` and masked observations work. Where all observed sites have common
    distributions, the Model has a metric; see `thermint.interop.fisher`.

    Args:
        model: a function that calls NumPyro's primitives.
        args: what it is called with.
        factors: ``{"name": "prior" or "likelihood"}``, the side that each `numpyro.factor` belongs to; the evidence
            depends on it. Those of the prior must leave it normalised, which is checked.
        kwargs: what the model is called with.

    Raises:
        ValueError: a latent site is improper or discrete, a plate is subsampled, a site is scaled, a parameter has no
            prior, or a factor is not in ``factors``; the message names it.

    Example:
        >>> import numpyro, thermint
        >>> import numpyro.distributions as dist
        >>> def coin(heads):
        ...     p = numpyro.sample("p", dist.Beta(2.0, 2.0))
        ...     numpyro.sample("heads", dist.Binomial(10, p), obs=heads)
        >>> thermint.from_numpyro(coin, 7).parameter_names
        ('p',)
    """
    bound = partial(model, *args, **kwargs)
    sites: dict[str, Site] = {}

    def free_values(key: Array) -> list[Array]:
        sites.update(_trace(handlers.substitute(handlers.seed(bound, key), substitute_fn=_check)))
        return [_free(site) for site in sites.values() if _is_latent(site)]

    shapes = jax.eval_shape(free_values, jax.random.key(0))  # nothing is run
    sides = _sides(sites, dict(factors or {}))
    latent = [name for name, site in sites.items() if _is_latent(site)]
    observed = [name for name in sides if not _is_factor(sites[name])]
    if not latent:
        raise ValueError("the NumPyro model has no latent site: there is nothing to integrate over.")
    if "likelihood" not in sides.values():
        raise ValueError("the NumPyro model has no observed site: call it with the data, or condition it on them.")
    # Lists keep the order of the sites; JAX sorts dictionaries.
    unravel = ravel_pytree([jnp.zeros(shape.shape) for shape in shapes])[1]

    def sites_at(theta: Array) -> dict[str, Site]:
        values = dict(zip(latent, unravel(theta), strict=True))
        return _trace(handlers.substitute(bound, substitute_fn=partial(_constrained, values)))

    def log_density(names: Iterable[str], theta: Array) -> Array:
        found = sites_at(theta)
        return _log_density(found[name] for name in names)

    def log_prior(theta: Array) -> Array:
        return _log_density(site for name, site in sites_at(theta).items() if name not in sides and _counts(site))

    def sample_prior(key: Array) -> Array:
        found = _trace(handlers.seed(bound, key))
        return ravel_pytree([_free(found[name]) for name in latent])[0]

    def constrain(theta: Array) -> dict[str, Array]:
        found = sites_at(theta).items()
        return {name: site["value"] for name, site in found if name in latent or site["type"] == "deterministic"}

    def parameters(name: str, theta: Array) -> Array:
        return _family(sites_at(theta)[name]).parameters

    def metric(theta: Array) -> tuple[Array, Array]:
        found = sites_at(theta)
        parts = [fisher.pull_back(partial(parameters, name), _family(found[name]).information) for name in observed]
        return jnp.sum(jnp.stack([part(theta) for part in parts]), axis=0), -jax.hessian(log_prior)(theta)

    of_prior = [name for name, side in sides.items() if side == "prior"]
    if of_prior:
        check_factors(of_prior, partial(log_density, of_prior), sample_prior)
    return Model(
        partial(log_density, sides),
        log_prior,
        sample_prior,
        metric=metric if all(_has_family(sites[name]) for name in sides) else None,
        constrain=constrain,
        names=tuple(
            f"{name}{index}" for name, shape in zip(latent, shapes, strict=True) for index in subscripts(shape.shape)
        ),
        normalised=True,
        data=_data(bound, observed),
    )


def _trace(model: Callable[[], Any]) -> dict[str, Site]:
    return handlers.trace(model).get_trace()


def _counts(site: Site) -> bool:
    return site["type"] == "sample"


def _is_latent(site: Site) -> bool:
    return _counts(site) and not site["is_observed"]


def _is_factor(site: Site) -> bool:
    return any(isinstance(layer, dist.Unit) for layer in layers(site["fn"]))


def _log_density(sites: Iterable[Site]) -> Array:
    return sum((jnp.sum(_log_prob(site["fn"], site["value"])) for site in sites), jnp.zeros(()))


def _log_prob(distribution: dist.Distribution, value: Array) -> Array:
    *wrappers, innermost = layers(distribution)
    shaped = all(isinstance(layer, dist.ExpandedDistribution | dist.Independent) for layer in wrappers)
    if shaped and type(innermost) is dist.BernoulliLogits:
        each = logistic.log_density(innermost.logits, value)
        return jnp.broadcast_to(each, jnp.broadcast_shapes(each.shape, distribution.shape()))
    return distribution.log_prob(value)


def _check(site: Site) -> None:
    """Refuse a latent site that has no proper continuous prior, before it is drawn."""
    if _is_latent(site):
        check_prior(site["name"], site["fn"])


def _free(site: Site) -> Array:
    """Map a latent site's value to the real line."""
    return biject_to(site["fn"].support).inv(site["value"].astype(float))


def _constrained(values: dict[str, Array], site: Site) -> Array | None:
    """Map a latent site's value back from the real line, and record the Jacobian as a factor."""
    if site["name"] not in values or not _counts(site):
        return None
    value, transform = values[site["name"]], biject_to(site["fn"].support)
    # Inside numpyro's scan, this is one item of the sequence.
    index = site["infer"].get("_scan_current_index")
    if index is not None and value.ndim > len(transform.inverse_shape(site["fn"].shape())):
        value = value[index]
    result = transform(value)
    numpyro.factor(site["name"] + JACOBIAN, jnp.sum(transform.log_abs_det_jacobian(value, result)))
    return result


def _sides(sites: dict[str, Site], factors: dict[str, Side]) -> dict[str, Side]:
    """Say on which side each observed site is, refusing what has none."""
    sides: dict[str, Side] = {}
    for name, site in sites.items():
        if site["type"] == "param":
            raise ValueError(
                f"{name!r} is a numpyro.param, a value without a prior: make it a numpyro.sample with a proper prior."
            )
        if site["type"] == "plate" and len(set(site["args"][:2]) - {None}) > 1:
            size, subsample = site["args"][:2]
            raise ValueError(
                f"plate {name!r} is subsampled ({subsample} of {size}): the evidence needs the likelihood of all data. "
                "Leave out subsample_size."
            )
        if not _counts(site):
            continue
        if site["scale"] is not None:
            raise ValueError(
                f"site {name!r} is scaled (handlers.scale): its density is no longer normalised, so that the evidence "
                "is not defined. Leave the scale out."
            )
        if not site["is_observed"]:
            continue
        if not _is_factor(site):
            sides[name] = "likelihood"
        elif name in factors:
            sides[name] = _side(name, factors[name])
        else:
            raise ValueError(
                f"the factor {name!r} may belong to the prior or to the likelihood, and the evidence depends on which: "
                f"say factors={{{name!r}: 'likelihood'}} or factors={{{name!r}: 'prior'}}."
            )
    unknown = sorted(set(factors) - set(sides))
    if unknown:
        raise ValueError(f"factors names {unknown[0]!r}, but the model has no factor of that name.")
    return sides


def _side(name: str, side: Side) -> Side:
    if side not in ("prior", "likelihood"):
        raise ValueError(f"factors[{name!r}] must be 'prior' or 'likelihood', not {side!r}.")
    return side


def _data(model: Callable[[], Any], observed: list[str]) -> dict[str, np.ndarray]:
    @jit()
    def values() -> dict[str, Array]:
        sites = _trace(handlers.seed(model, jax.random.key(0)))
        return {name: sites[name]["value"] for name in observed}

    return {name: np.asarray(value) for name, value in values().items()}


class Family(NamedTuple):
    """The parameters of an observed site's distribution, and the information that the observations have of them."""

    parameters: Array  # [..., k]
    information: fisher.Information


# Each distribution's parameters, or a function that returns them as one array [..., k].
FAMILIES: dict[type, tuple[Callable[[Any], tuple[Array, ...]], fisher.Information]] = {
    dist.Normal: (lambda d: (d.loc, d.scale), fisher.normal),
    dist.LogNormal: (lambda d: (d.loc, d.scale), fisher.normal),
    dist.StudentT: (lambda d: (d.df, d.loc, d.scale), fisher.student_t),
    dist.BernoulliLogits: (lambda d: (d.logits,), fisher.bernoulli_logits),
    dist.BernoulliProbs: (lambda d: (d.probs,), fisher.bernoulli_probs),
    dist.BinomialLogits: (lambda d: (d.logits,), fisher.bernoulli_logits),
    dist.BinomialProbs: (lambda d: (d.probs,), fisher.bernoulli_probs),
    dist.Poisson: (lambda d: (d.rate,), fisher.poisson),
    dist.Exponential: (lambda d: (d.rate,), fisher.exponential),
    dist.Gamma: (lambda d: (d.concentration, d.rate), fisher.gamma),
    **{
        family: (lambda d: (d.concentration / d.rate, d.concentration), fisher.negative_binomial)
        for family in (
            dist.GammaPoisson,
            dist.NegativeBinomial2,
            dist.NegativeBinomialProbs,
            dist.NegativeBinomialLogits,
        )
    },
    dist.CategoricalLogits: (lambda d: tuple(jnp.moveaxis(d.logits, -1, 0)), fisher.categorical_logits),
    dist.CategoricalProbs: (lambda d: tuple(jnp.moveaxis(d.probs, -1, 0)), fisher.categorical_probs),
}


def _has_family(site: Site) -> bool:
    *wrappers, innermost = layers(site["fn"])
    known = (dist.ExpandedDistribution, dist.Independent, dist.MaskedDistribution)
    return type(innermost) in FAMILIES and all(isinstance(layer, known) for layer in wrappers)


def _family(site: Site) -> Family:
    weight = jnp.ones(())
    shape = site["fn"].shape()
    for layer in layers(site["fn"]):
        if isinstance(layer, dist.MaskedDistribution):
            mask = jnp.asarray(layer._mask, float)
            weight *= mask.reshape(*mask.shape, *(1,) * layer.event_dim)
    read, information = FAMILIES[type(layer)]
    weight = jnp.broadcast_to(weight * getattr(layer, "total_count", 1.0), shape)
    parameters = jnp.stack([jnp.broadcast_to(p, shape) for p in read(layer)], axis=-1)
    return Family(parameters, lambda p: weight[..., None, None] * information(p))
