"""Rounds, budgets, and which of two paths is believed: made-up answers, of which the right decision is known."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pandas as pd
import pytest
from scipy import stats

import thermint
from thermint import Evidence
from thermint.diagnostics import agree, round_warnings
from thermint.inference import paths, rounds
from thermint.inference.decisions import SHIFTED, _covering, decide
from thermint.inference.options import Budget, Call, Options, OutOfBudgetError
from thermint.inference.rounds import RoundResult, _ending, _interrupted, _with_own_names, warned
from thermint.kernels import hmc, mala
from thermint.model.draws import ScoredDraws
from thermint.model.result import Posterior
from thermint.model.settings import Settings
from thermint.path import ladders
from thermint.path.quadrature import rule_of
from thermint.runtime.session import Session
from thermint.sampling.swaps import even_odd

MANY = 1e9  # degrees of freedom: errors as of a normal distribution


def answer(value: float, error: float = 0.1, warnings: tuple[str, ...] = (), **others: Any) -> Evidence:
    """Make an answer of a path, that has no tables."""
    empty = pd.DataFrame()
    made = Evidence(value, error, error, 0.0, MANY, 1000, 1.0, warnings, empty, empty, {}, Settings())
    return replace(made, **others)


# --- Whether answers agree ---


@pytest.mark.parametrize("level", [0.05, 1e-4])
def test_answers_agree_up_to_the_quantile_of_their_common_error(level: float) -> None:
    # Few degrees of freedom, whose quantiles would excuse any difference, count as ten.
    for dof, distribution in ((MANY, stats.norm), (20.0, stats.t(20.0)), (3.0, stats.t(10.0))):
        allowed = distribution.isf(level / 2) * 0.5  # of errors 0.3 and 0.4
        one = answer(-10.0, 0.3)
        for share, expected in ((0.97, True), (1.03, False)):
            other = answer(-10.0 + share * allowed, 0.4, degrees_of_freedom=dof)
            assert agree(one, other, level) is agree(other, one, level) is expected


def test_rounds_may_differ_by_five_errors() -> None:
    assert not round_warnings(answer(-10.0, 0.3), answer(-12.45, 0.4))
    (said,) = round_warnings(answer(-10.0, 0.3), answer(-13.0, 0.4))
    assert "the last two rounds differ by 3, 6 standard errors" in said


# --- Which path is believed ---

PRIOR = {"scale": dist.LogNormal(0.5, 0.8), "mean": dist.Normal(jnp.zeros(2), 2.0)}
MODEL = thermint.Model.from_prior(PRIOR, lambda p: -jnp.sum(p["mean"] ** 2))


def call_with(*, session: Any = None, **options: Any) -> Call:
    """Make a call of `evidence` with these options; other budgets and options are the default ones."""
    default: dict[str, Any] = {
        "reference": "auto",
        "ladder": None,
        "kernel": None,
        "swap": even_odd,
        "degree": "auto",
        "rule": None,
        "crossfit": True,
        "draws": 1000,
        "populations": 4,
        "keep_draws": False,
        "seed": 0,
    }
    budget = {name: options.pop(name) for name in ("target_error", "max_evaluations", "max_seconds") if name in options}
    return Call(MODEL, Options(**default | options), Budget(**budget), session or Session())


LADDER = ladders.lobatto(5)  # for the fitted path


class MadeUp:
    """Two paths and a scout, whose answers are given; None is what there is no room for."""

    def __init__(self, patch: pytest.MonkeyPatch, scouted: Evidence, fitted: Evidence, prior: Evidence | None = None):
        self.prior = prior
        self.ran: list[Any] = []  # of the prior path: ladder, rule, and evaluations before it
        patch.setattr(paths, "run_scout", lambda call: scouted)
        patch.setattr(paths, "fitted_path", lambda call, found: fitted)
        patch.setattr(paths, "prior_path", self.prior_path)

    def prior_path(self, call: Call, scouted: Evidence | None = None, spent: int = 0) -> Evidence:
        self.ran.append((call.options.ladder is not None, call.options.rule, spent))
        if self.prior is None:
            raise OutOfBudgetError("too few")
        return self.prior

    def answer(self, reference: str = "auto", *, normalised: bool = True, stopping: bool = False) -> Evidence:
        call = call_with(reference=reference, ladder=LADDER, rule="lobatto", session=SimpleNamespace(stopping=stopping))
        return decide(replace(call, model=replace(MODEL, normalised=normalised)))


FITTED = answer(-10.0, 0.1)
SUSPECT = replace(FITTED, warnings=("slow: ...",))
COST: dict[str, Any] = {"evaluations": 5000, "seconds": 9.0}  # of both paths
# The scout's error is 0.1 too: the quantiles are 0.28 where the answer is doubted, and 0.55 where it is not.
NEAR, FARTHER, FAR = 0.2, 0.4, 0.7


@pytest.mark.parametrize(
    ("found", "apart", "looks"),
    [
        (FITTED, NEAR, False),
        (FITTED, FARTHER, False),
        (FITTED, FAR, True),
        (SUSPECT, NEAR, False),
        (SUSPECT, FARTHER, True),  # an answer that warns of itself is doubted sooner
        (SUSPECT, -FARTHER, False),  # but not where the scout has found less
    ],
)
def test_a_closer_look_is_taken_where_there_is_doubt(
    found: Evidence, apart: float, looks: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = MadeUp(monkeypatch, answer(-10.0 + apart), found, prior=answer(-10.0, **COST))
    result = made.answer()
    assert made.ran == [(False, None, found.evaluations)] * looks  # neither ladder nor rule were meant for it
    assert result == (replace(found, **COST) if looks else found)


def test_a_path_that_was_asked_for_is_run_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    made = MadeUp(monkeypatch, answer(50.0), FITTED, prior=answer(-3.0))
    assert made.answer("prior") is made.prior
    assert made.ran == [(True, "lobatto", 0)]
    said = made.answer("fitted")
    assert replace(said, warnings=()) == FITTED
    assert 'reference="auto" would look closer' in said.warnings[0]
    assert len(made.ran) == 1


def test_nothing_more_is_run_once_it_is_to_stop(monkeypatch: pytest.MonkeyPatch) -> None:
    assert MadeUp(monkeypatch, answer(50.0), FITTED).answer(stopping=True) is FITTED


@pytest.mark.parametrize("normalised", [True, False])
def test_a_scout_that_found_less_confirms_nothing(normalised: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    result = MadeUp(monkeypatch, answer(-20.0), SUSPECT).answer(normalised=normalised)
    assert replace(result, warnings=()) == FITTED
    disagreement, own = result.warnings
    assert "cannot confirm that the former has missed nothing" in disagreement
    assert (SHIFTED in disagreement) is not normalised
    assert own == "slow: ..."


@pytest.mark.parametrize(("apart", "disagrees"), [(FARTHER, False), (FAR, True)])
def test_doubt_without_room_to_look_closer_is_no_disagreement(
    apart: float, disagrees: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    result = MadeUp(monkeypatch, answer(-10.0 + apart), SUSPECT).answer()
    assert replace(result, warnings=SUSPECT.warnings) == SUSPECT
    assert ["max_evaluations leaves no room" in said for said in result.warnings[:-1]] == [True] * disagrees


@pytest.mark.parametrize("normalised", [True, False])
def test_the_prior_path_is_believed_if_it_found_more_and_shows_no_trouble(
    normalised: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    prior = answer(-7.0, 0.2, **COST)
    result = MadeUp(monkeypatch, answer(-7.0), SUSPECT, prior).answer(normalised=normalised)
    assert replace(result, warnings=()) == prior
    assert "which has found more and shows no sign of trouble" in result.warnings[0]
    assert (SHIFTED in result.warnings[0]) is not normalised
    assert result.warnings[1:] == ("from the fitted path: slow: ...",)


@pytest.mark.parametrize(("fitted", "prior"), [(-10.0, -7.0), (-7.0, -10.0)], ids=["prior", "fitted"])
def test_the_larger_answer_covers_both_where_it_may_be_wrong(
    fitted: float, prior: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    found, other = replace(SUSPECT, log_evidence=fitted), replace(SUSPECT, log_evidence=prior, **COST)
    result = MadeUp(monkeypatch, answer(0.0), found, other).answer()
    assert (result.log_evidence, result.standard_error, result.mc_error) == (-7.0, 3.0, 0.1)
    assert (result.evaluations, result.seconds) == (5000, 9.0)
    assert "This is the larger, and its error covers both" in result.warnings[0]
    assert "slow: ..." in result.warnings


def test_an_error_that_is_wide_already_stays() -> None:
    wide = answer(-7.0, 2.0, ("slow: ...",))
    assert _covering(wide, wide, FITTED).standard_error == 3.0
    wider = replace(wide, standard_error=4.0)
    assert _covering(wider, wider, FITTED).standard_error == 4.0


# --- Rounds ---


def round_of(result: Evidence, **others: Any) -> RoundResult:
    """A round that took 1000 evaluations and 2 seconds."""
    place: Any = SimpleNamespace(ladder=np.linspace(0.0, 1.0, 5))
    g = np.zeros((4, 10, 5))
    thinned = ScoredDraws(g, g[..., None], g[..., None])
    made = RoundResult(1, result, g, thinned, draws=1000, spent=1000, seconds=2.0, state=place)
    return made._replace(**others)


def test_rounds_end_at_the_target() -> None:
    for target, error, expected in ((None, 9.0, []), (0.01, 0.01, []), (0.01, 0.0101, None)):
        assert _ending(call_with(target_error=target), round_of(answer(-1.0, error))) == expected


def test_a_target_below_all_that_is_known_of_quadrature_ends_the_rounds() -> None:
    done = round_of(answer(-1.0, 6e-12, quadrature_error=5e-12))
    (told,) = _ending(call_with(target_error=1e-12), done) or [""]
    assert "no quadrature error is known to be below" in told
    assert _ending(call_with(target_error=5.5e-12), done) is None  # more draws may reach it


@pytest.mark.parametrize(
    ("options", "others", "words"),
    [
        # The next round takes twice what the last one did: 1000 + 2000 evaluations in all.
        ({"max_evaluations": 2999}, {}, "max_evaluations = 2999"),
        ({"max_evaluations": 3000}, {}, None),
        # It would take four seconds.
        ({"max_seconds": 3.9}, {}, "max_seconds = 3.9"),
        ({"max_seconds": 60.0}, {}, None),
        ({"ladder": ladders.power(5)}, {"result": answer(-1.0, 0.1, quadrature_error=0.02)}, "the ladder given"),
        ({"ladder": ladders.power(5)}, {"result": answer(-1.0, 0.1, quadrature_error=0.005)}, None),
        ({}, {"result": answer(-1.0, 0.1, quadrature_error=0.02)}, None),  # the ladder can still be changed
        # Without a budget there is an end, too, after 10^4 to 10^5 times the draws of the first round.
        ({}, {"number": 13}, None),
        ({}, {"number": 17}, "rounds"),
    ],
)
def test_a_budget_ends_the_rounds(options: dict[str, Any], others: dict[str, Any], words: str | None) -> None:
    ending = _ending(call_with(target_error=0.01, **options), round_of(**{"result": answer(-1.0)} | others))
    if words is None:
        assert ending is None
    else:
        assert ending is not None
        (reason,) = ending
        assert reason.startswith("target_error = 0.01 was not reached: the error is 0.1, and what ended the run was")
        assert words in reason


def test_draws_that_are_kept_must_fit_in_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    done = round_of(answer(-1.0))
    keeping, not_keeping = (call_with(target_error=0.01, keep_draws=keep) for keep in (True, False))
    monkeypatch.setattr(rounds, "free", lambda: 1e4)
    assert "keep_draws, for which the next round would need" in str(_ending(keeping, done))
    assert _ending(not_keeping, done) is None
    monkeypatch.setattr(rounds, "free", lambda: 1e12)
    assert _ending(keeping, done) is None


def test_the_first_round_fits_the_budget() -> None:
    some = call_with(max_evaluations=10_000)  # of 4 populations
    assert some.affordable(2000, 5, mala) == 8000 // 20
    assert some.affordable(2000, 5, hmc) == 8000 // (20 * hmc.evaluations)  # type: ignore[attr-defined]
    assert call_with().affordable(2000, 5, mala) == 1000
    assert call_with(max_evaluations=10**9).affordable(2000, 5, mala) == 1000
    with pytest.raises(OutOfBudgetError, match="took 9900, and 5 rungs of 4 populations leave 5 "):
        some.affordable(9900, 5, mala)
    with pytest.raises(OutOfBudgetError, match="leave 0 draws each"):
        some.affordable(20_000, 5, mala)


def test_the_better_of_two_rounds_is_the_answer_if_it_is_interrupted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rounds, "_with_own_names", lambda model, result: result)
    plan: Any = SimpleNamespace(draws=2000)
    nothing: Any = None
    previous = round_of(answer(-1.0, 0.2))
    for error, value, words in (
        (0.1, -2.0, "in round 2, after 600 of 2000 draws"),
        (0.3, -1.0, "in round 2, so that this is the round before"),
    ):
        new = round_of(answer(-2.0, error), number=2, draws=600)
        monkeypatch.setattr(rounds, "_finish", lambda *_, new=new: new)
        collected: Any = "some draws"
        result = _interrupted(call_with(), previous, collected, nothing, plan)
        assert result.log_evidence == value
        assert words in result.warnings[0]
    assert _interrupted(call_with(), previous, None, nothing, plan).log_evidence == -1.0


# --- What the user reads ---


def test_posterior_draws_have_the_models_names_and_prior() -> None:
    theta = np.random.default_rng(0).normal(size=(2, 7, 3))
    path = Posterior({"theta": theta}, np.full((2, 7), -5.0), np.full((2, 7), -1.5), np.ones((2, 7)))
    named = _with_own_names(MODEL, answer(-1.0, posterior=path)).posterior
    assert named is not None
    np.testing.assert_allclose(named.values["scale"], np.exp(theta[..., 0]), rtol=1e-12)
    np.testing.assert_allclose(named.values["mean"], theta[..., 1:], rtol=1e-12)
    log_prior = stats.norm.logpdf(theta[..., 0], 0.5, 0.8) + stats.norm.logpdf(theta[..., 1:], 0, 2).sum(axis=-1)
    np.testing.assert_allclose(named.log_prior, log_prior, rtol=1e-10)
    np.testing.assert_allclose(named.log_likelihood + named.log_prior, -6.5, rtol=1e-12)  # as it was on the path


def test_warnings_are_put_before_the_others() -> None:
    assert warned(SUSPECT, "first", "second").warnings == ("first", "second", "slow: ...")
    assert warned(FITTED) == FITTED


@pytest.mark.parametrize(
    ("rule", "ladder", "expected"),
    [
        (None, None, "second-order"),
        (None, ladders.lobatto(5), "lobatto"),
        (None, ladders.lobatto(2), "second-order"),  # any two rungs are a Lobatto ladder
        (None, ladders.power(5), "second-order"),
        ("trapezoid", ladders.lobatto(5), "trapezoid"),
    ],
)
def test_the_rule_suits_the_ladder(rule: str | None, ladder: Any, expected: str) -> None:
    assert rule_of(rule, ladder) == expected


def test_rules_that_do_not_suit_are_refused() -> None:
    with pytest.raises(ValueError, match="rule = 'simpson': it must be one of 'trapezoid', 'second-order'"):
        rule_of("simpson", None)
    with pytest.raises(ValueError, match="lobatto"):
        rule_of("lobatto", ladders.power(5))
