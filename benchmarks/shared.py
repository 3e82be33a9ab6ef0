"""Do coefficients shared along the ladder pay? Spread of the integral over short replicates, cut from one long run.

``python -m benchmarks.shared`` takes ten minutes. The table's columns, each a ratio of standard deviations to that
of ``degree="auto"`` as it is, which has a third of the draws a rung as its limit of features:

    plain     no control variates
    own       every rung by itself, as in "auto", with more features: a sixth of the draws of all rungs
    shared    or a polynomial along the ladder, with the same features
    ridge     or that polynomial plus what the rung's own draws add, shrunk
    cross     the same as ridge, where products of coordinates come with that many features too
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from scipy import special

import thermint
from benchmarks.shared_coefficients import share
from thermint import Draws, Model, ladders
from thermint.control import basis
from thermint.control import gram as grams
from thermint.control.coefficients import Controlled, control, uncontrolled
from thermint.control.gram import Gram
from thermint.control.plan import AUTO_DEGREE, FOLDS, make_plan
from thermint.estimators.thermodynamic import integrate
from thermint.kernels import mala
from thermint.model.draws import concatenate, scored_draws
from thermint.path.coordinates import RungMoments
from thermint.path.fitting import fit
from thermint.path.path import Path
from thermint.path.quadrature import RULES
from thermint.sampling.options import SamplerOptions
from thermint.sampling.sampler import make_sampler

POPULATIONS = 2
LENGTH = 100  # of a chunk
METHODS = ("auto", "plain", "own", "shared", "ridge", "cross")


class Drawn(NamedTuple):
    """A long run."""

    name: str
    rule: str
    draws: Draws
    frame: RungMoments


def logistic(d: int, n: int) -> Model:
    """Logistic regression, simulated: X[n, d] ~ N(0, 4/d), beta ~ N(0, I)."""
    rng = np.random.default_rng(d)
    X = 2 * rng.standard_normal((n, d)) / np.sqrt(d)
    y = (rng.random(n) < special.expit(X @ rng.standard_normal(d))).astype(float)
    X_transposed, Xy = X.T.copy(), X.T @ y

    def log_likelihood(beta: Array) -> Array:
        return beta @ Xy - jnp.sum(jnp.logaddexp(0.0, beta @ X_transposed))

    def log_prior(beta: Array) -> Array:
        return -d / 2 * np.log(2 * np.pi) - jnp.sum(beta**2) / 2

    return Model(log_likelihood, log_prior, lambda key: jax.random.normal(key, (d,)), normalised=True)


PROBLEMS: dict[str, Callable[[], Model]] = {
    "pima-2, d = 6": lambda: thermint.paper.pima.model(2),
    "logistic, d = 20": lambda: logistic(20, 200),
    "logistic, d = 50": lambda: logistic(50, 500),
}


def paths(model: Model, rungs: int, number: int) -> list[Drawn]:
    """Run the prior path, and the one from a reference fitted to its first posterior draws, with frozen frames."""

    def chunks(draw: Callable[[], Draws]) -> Draws:
        return concatenate([draw() for _ in range(-(-number // LENGTH))])

    prior = make_sampler(
        Path(model),
        ladders.power(rungs),
        SamplerOptions(POPULATIONS, length=LENGTH),
        jax.random.key(0),
    )
    draws = chunks(prior.chunk)
    _, position, score = scored_draws(draws.block(0, 400))
    mixture = fit(position[:, :, -1], score[:, :, -1])
    fitted = make_sampler(
        Path(model, mixture),
        ladders.lobatto(5),
        SamplerOptions(POPULATIONS, mala, length=LENGTH),
        jax.random.key(1),
    )
    return [
        Drawn("prior", "second-order", draws, prior.frame),
        Drawn("fitted", "lobatto", chunks(fitted.chunk), mixture.coordinates(fitted.frame)),
    ]


def gram_of(draws: Draws, frame: RungMoments, degree: int, cross: bool) -> Gram:
    """Sum draws, in as many batches as folds."""
    populations, number = draws.log_prior.shape[:2]
    gram = grams.empty(frame, populations=populations, batches=FOLDS, folds=FOLDS, degree=degree, cross=cross)
    length = number // FOLDS
    for fold in range(FOLDS):
        block = draws.block(fold * length, (fold + 1) * length)
        gram, _ = grams.accumulate(gram, block, fold, degree=degree, cross=cross)
    return gram


def replicate(path: Drawn, block: Draws) -> dict[str, float]:
    """Integrate in every way."""
    populations, number, rungs, d = block.position.shape
    options = {"draws": number, "populations": populations, "rungs": rungs, "dimension": d}
    plan = make_plan(**options, degree="auto", rule=path.rule, crossfit=True)
    ladder = np.asarray(block.ladder)

    def features(cross: bool) -> tuple[int, ...]:
        sizes = [basis.size(d, degree, cross) for degree in range(AUTO_DEGREE + 1)]
        return tuple(size for size in sizes if size <= max(number * populations * rungs / 6, plan.sizes[-1]))[:4]

    def controlled(sizes: tuple[int, ...], cross: bool) -> tuple[Gram, Controlled]:
        gram = gram_of(block, path.frame, len(sizes) - 1, cross)
        return gram, control(gram, sizes, fixed=False, crossfit=True)

    gram, auto = controlled(plan.sizes, plan.cross)
    results = {"auto": auto, "plain": uncontrolled(gram)}
    sizes = features(plan.cross)
    gram, results["own"] = controlled(sizes, plan.cross)
    results["shared"] = share(gram, sizes, results["own"], own_ridges=())
    results["ridge"] = results["cross"] = share(gram, sizes, results["own"])
    sizes = features(True)
    if not plan.cross and len(sizes) > 2:
        gram, own = controlled(sizes, True)
        results["cross"] = share(gram, sizes, own)
    return {
        name: integrate(results[name], np.asarray(gram.number), path.frame, ladder, RULES[path.rule]).value
        for name in METHODS
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--replicates", type=int, default=20)
    parser.add_argument("--rungs", type=int, default=21, help="of the prior path")
    parser.add_argument("--draws", type=int, nargs="+", default=[20, 50, 100, 200], help="a rung, all populations")
    parser.add_argument("--problems", nargs="+", default=list(PROBLEMS), choices=list(PROBLEMS))
    parser.add_argument("--quick", action="store_true", help="Pima, 3 replicates of 20 draws on 9 rungs")
    options = parser.parse_args()
    if options.quick:
        options.replicates, options.rungs, options.draws, options.problems = 3, 9, [20], list(PROBLEMS)[:1]
    print(
        f"{options.replicates} replicates, {POPULATIONS} populations; prior path: {options.rungs} quintic rungs, "
        f"second-order rule; fitted path: 5 Lobatto rungs; thermint {thermint.__version__}\n"
        "s.d. of the integral for auto, and the others' s.d. as a share of it\n"
    )
    print("problem            path    draws     auto  " + "".join(f"{name:>8}" for name in METHODS[1:]) + "  seconds")
    for name in options.problems:
        for path in paths(PROBLEMS[name](), options.rungs, options.replicates * max(options.draws) // POPULATIONS):
            for draws in options.draws:
                begin, number = time.perf_counter(), draws // POPULATIONS
                stride = path.draws.log_prior.shape[1] // options.replicates
                starts = [i * stride for i in range(options.replicates)]
                values = [replicate(path, path.draws.block(start, start + number)) for start in starts]
                sd = {method: np.std([one[method] for one in values], ddof=1) for method in METHODS}
                print(
                    f"{name:<18} {path.name:<7} {draws:>5} {sd['auto']:>9.2g}  "
                    + "".join(f"{sd[method] / sd['auto']:>8.2f}" for method in METHODS[1:])
                    + f"{time.perf_counter() - begin:>8.0f}",
                    flush=True,
                )


if __name__ == "__main__":
    main()
