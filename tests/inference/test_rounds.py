"""From model to answer: both paths, rounds until an error is reached, budgets, and what is said if paths differ."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest
from jax import Array
from scipy import special
from targets import NORMAL, SKEWED, SKEWED_2, Target, normal

import thermint
from thermint import Draws, Model, ladders
from thermint.inference import paths
from thermint.kernels.hmc import STEPS
from thermint.model import closure_constants, evaluate
from thermint.model.closure_constants import cheap_to_run
from thermint.paper import linear, radiata
from thermint.path.path import Path
from thermint.sampling import population
from thermint.search import refinement
from thermint.search.modes import Chains

WEIGHTS, CENTRES, WIDTHS = np.array([0.3, 0.7]), np.array([-3.0, 3.0]), np.array([0.1, 0.4])
PRIOR = 4.0


def _two_modes() -> Model:
    """Two normals far apart under a wide normal prior, in one dimension."""

    def log_likelihood(theta: Array) -> Array:
        logs = np.log(WEIGHTS) - jnp.log(WIDTHS) - 0.5 * ((theta[0] - CENTRES) / WIDTHS) ** 2
        return jax.nn.logsumexp(logs) - 0.5 * np.log(2 * np.pi)

    return Model(
        log_likelihood,
        lambda theta: jax.scipy.stats.norm.logpdf(theta[0], scale=PRIOR),
        lambda key: PRIOR * jax.random.normal(key, (1,)),
        normalised=True,
    )


TWO_MODES = _two_modes()
TWO_MODES_TRUTH = float(
    special.logsumexp(
        np.log(WEIGHTS) - 0.5 * np.log(2 * np.pi * (WIDTHS**2 + PRIOR**2)) - CENTRES**2 / (2 * (WIDTHS**2 + PRIOR**2))
    )
)


def test_the_default_needs_no_tuning_for_four_digits() -> None:
    result = thermint.evidence(radiata.model(1), seed=5)
    assert result.settings["reference"] == "fitted"
    assert result.standard_error < 1e-4
    assert abs(result.log_evidence - radiata.log_evidence(1)) < 4 * result.standard_error
    assert result.evaluations < 60_000
    assert not result.warnings


@pytest.mark.parametrize("reference", ["prior", "fitted", "auto"])
def test_all_references_have_the_same_evidence(reference: str) -> None:
    result = thermint.evidence(SKEWED_2.model, reference=reference, draws=200, seed=2)
    assert abs(result.log_evidence - SKEWED_2.log_evidence) < 4 * result.standard_error
    assert result.standard_error < {"prior": 0.1}.get(reference, 0.01)


def test_a_normal_posterior_is_exact_whatever_the_dimension() -> None:
    result = thermint.evidence(linear.model(), draws=100, seed=3)
    assert abs(result.log_evidence - linear.log_evidence()) < 1e-6


def test_pilots_and_the_first_round_are_one_program(monkeypatch: pytest.MonkeyPatch) -> None:
    # Brief for mala, which walks the fitted path, and not for hmc, which scouts so many parameters.
    d, draws = STEPS**2, 200
    model = normal(np.eye(d), np.ones(d), 0.5, np.eye(d)).model
    evaluations = draws * 4 * refinement.RUNGS[0]
    monkeypatch.setattr(
        closure_constants, "BRIEF", 2 * evaluations * (closure_constants._work(model.log_likelihood, d) + 10 * d**2)
    )
    assert cheap_to_run(model, evaluations)
    assert not cheap_to_run(model, evaluations * STEPS)
    levels = []

    def engine_of(path: Path, *args: Any, **options: Any) -> population.Engine:
        if path.reference.describe()["reference"] == "fitted":
            levels.append(options["level"])
        return made(path, *args, **options)

    made = population.engine_of
    monkeypatch.setattr(population, "engine_of", engine_of)
    thermint.evidence(model, draws=draws, seed=3)
    assert len(levels) > 1
    assert set(levels) == {0}


def test_two_modes_are_found_and_weighed() -> None:
    for seed in range(3):
        result = thermint.evidence(TWO_MODES, seed=seed)
        assert result.settings["components"] == 2
        assert result.standard_error < 0.01
        assert abs(result.log_evidence - TWO_MODES_TRUTH) < 4 * result.standard_error


def test_rounds_double_until_the_error_is_reached() -> None:
    first = thermint.evidence(SKEWED_2.model, draws=50, degree=2, seed=1)
    target = first.standard_error / 6
    result = thermint.evidence(SKEWED_2.model, draws=50, degree=2, seed=1, target_error=target)
    assert result.standard_error <= target
    assert result.settings["rounds"] >= 3
    assert result.settings["draws"] >= 4 * first.settings["draws"]
    assert result.evaluations > first.evaluations
    assert abs(result.log_evidence - SKEWED_2.log_evidence) < 4 * result.standard_error
    assert not any("target_error" in warning for warning in result.warnings)


def test_rounds_on_the_prior_path_go_on_without_another_warm_up() -> None:
    options = {"reference": "prior", "ladder": 11, "draws": 50, "degree": 2, "seed": 1}
    first = thermint.evidence(SKEWED_2.model, **options)  # type: ignore[arg-type]
    result = thermint.evidence(SKEWED_2.model, **options, target_error=first.mc_error / 1.5)  # type: ignore[arg-type]
    rounds = result.settings["rounds"]
    drawn = 11 * 4 * first.settings["draws"]
    assert result.settings["draws"] == 2 ** (rounds - 1) * first.settings["draws"]
    assert result.evaluations == first.evaluations + (2**rounds - 2) * drawn


@pytest.mark.parametrize(
    ("budget", "words"),
    [({"max_evaluations": 60_000}, "max_evaluations = 60000"), ({"max_seconds": 0.1}, "max_seconds = 0.1")],
)
def test_a_budget_ends_the_rounds_and_says_so(budget: dict[str, float], words: str) -> None:
    result = thermint.evidence(SKEWED_2.model, draws=100, degree=1, target_error=1e-9, **budget)  # type: ignore[arg-type]
    (said,) = (warning for warning in result.warnings if "target_error = 1e-09 was not reached" in warning)
    assert words in said
    assert result.evaluations <= budget.get("max_evaluations", np.inf)


def test_the_first_round_is_shortened_to_fit_a_budget() -> None:
    result = thermint.evidence(SKEWED_2.model, draws=1000, max_evaluations=45_000)
    assert result.settings["draws"] < 1000
    assert result.evaluations <= 45_000
    with pytest.raises(ValueError, match="max_evaluations = 1000 is too few: finding the posterior took"):
        thermint.evidence(SKEWED_2.model, max_evaluations=1000)


@pytest.mark.parametrize("option", ["target_error", "max_evaluations", "max_seconds"])
@pytest.mark.parametrize("value", [0, -1.0, "much", True])
def test_bad_targets_and_budgets_are_named(option: str, value: object) -> None:
    with pytest.raises(ValueError, match=f"{option} = {value!r}: it must be a number above zero"):
        thermint.evidence(SKEWED.model, **{option: value})  # type: ignore[arg-type]


@pytest.mark.parametrize("reference", ["auto", "fitted"])
def test_a_reference_that_misses_a_mode_is_reported(reference: str, monkeypatch: pytest.MonkeyPatch) -> None:
    original = paths.refine_reference

    def one_sided(model, chains, *args, **options):
        left = chains.position[:, -1, 0] < 0
        blind = replace(model, log_likelihood=lambda x: model.log_likelihood(x) - jnp.where(x[0] < 0, 0.0, 1e4))
        return original(blind, Chains(*(part[left] for part in chains)), *args, **options)

    monkeypatch.setattr(paths, "refine_reference", one_sided)
    result = thermint.evidence(TWO_MODES, reference=reference, seed=1)
    (said,) = (warning for warning in result.warnings if "the two paths disagree" in warning)
    if reference == "auto":
        # The prior's path has found more.
        assert result.settings["reference"] == "prior"
        assert abs(result.log_evidence - TWO_MODES_TRUTH) < 4 * result.standard_error
        assert result.standard_error < 0.05
        assert "This is the latter, which has found more and shows no sign of trouble" in said
    else:
        assert abs(result.log_evidence - (TWO_MODES_TRUTH + np.log(0.3))) < 0.05
        assert 'reference="auto" would look closer' in said


def with_other_scout(monkeypatch: pytest.MonkeyPatch, **changes: Any) -> None:
    """Change what the scout finds."""
    original = paths.scout
    monkeypatch.setattr(paths, "scout", lambda *args, **options: original(*args, **options)._replace(**changes))


def test_a_scout_that_errs_costs_a_run_but_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    right = thermint.evidence(SKEWED_2.model, draws=100, seed=4)
    with_other_scout(monkeypatch, log_evidence=100.0)
    result = thermint.evidence(SKEWED_2.model, draws=100, seed=4)
    assert result.log_evidence == right.log_evidence
    assert result.evaluations > right.evaluations
    assert not any("disagree" in warning for warning in result.warnings)


def test_a_scout_that_found_less_cannot_confirm_and_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    right = thermint.evidence(SKEWED_2.model, draws=100, seed=4)
    with_other_scout(monkeypatch, log_evidence=-100.0)
    result = thermint.evidence(SKEWED_2.model, draws=100, seed=4)
    assert (result.log_evidence, result.standard_error) == (right.log_evidence, right.standard_error)
    assert result.evaluations == right.evaluations
    (said,) = (warning for warning in result.warnings if "the two paths disagree" in warning)
    assert "cannot confirm that the former has missed nothing" in said


FEW = 10  # draws of a population, where control is most likely to do harm


def _control_cases() -> list[Any]:
    """Every target with every number of draws; most of that is a long study."""
    targets = {"normal": NORMAL, "skewed": SKEWED, "skewed-2": SKEWED_2}
    return [
        pytest.param(
            target,
            number,
            id=f"{number}-{name}",
            marks=() if number == FEW else pytest.mark.slow,
        )
        for number in (FEW, 25, 100, 400)
        for name, target in targets.items()
    ]


@pytest.mark.parametrize(("target", "number"), _control_cases())
def test_control_never_makes_it_worse(target: Target, number: int) -> None:
    """Over replicates of independent draws, the automatic degree has no larger root mean square error than none at all.

    Forty replicates know a ratio of two errors, which are alike, to some 10 %.
    """
    ladder = ladders.power(9, 3)
    truth = sum(
        weight * target.expected_log_likelihood(t)
        for weight, t in zip(thermint.path.quadrature.trapezoid(ladder)[0], ladder, strict=True)
    )
    at = jax.jit(jax.vmap(jax.vmap(lambda x: evaluate(replace(target.model, metric=None), x))))
    squares = {0: 0.0, "auto": 0.0}
    for replicate in range(40):
        rng = np.random.default_rng(replicate)
        x = np.stack([target.draw(rng, t, 2 * number) for t in ladder], axis=1)
        state = at(x)
        fields = [np.asarray(a).reshape(2, number, *a.shape[1:]) for a in state[:5]]
        draws = Draws(ladder, *fields)
        for degree in (0, "auto"):
            result = thermint.estimate(draws, degree=degree, rule="trapezoid")
            squares[degree] += (result.log_evidence - truth) ** 2
    assert np.sqrt(squares["auto"] / squares[0]) < 1.1


def test_a_ladder_that_grows_between_rounds_stays_within_the_budget():
    y = jnp.array([1.2, 0.8, 1.9, 1.4, 0.3, 1.1, 2.2, 0.9, 1.7, 0.6])
    prior = {"mean": dist.Normal(0, 10), "scale": dist.LogNormal(0, 1)}
    model = thermint.Model.from_prior(prior, lambda p: dist.Normal(p["mean"], p["scale"]).log_prob(y).sum())
    result = thermint.evidence(model, target_error=1e-5, max_evaluations=10**6, progress=False)
    assert 500_000 < result.evaluations <= 10**6
    assert "what ended the run was max_evaluations = 1000000" in result.warnings[0]
