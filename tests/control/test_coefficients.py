"""Control variates: coefficients against plain least squares, honest cross-fitting, and the alarm for broken ones."""

from __future__ import annotations

from functools import cache
from typing import NamedTuple
from unittest import mock

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import special, stats

import thermint
from thermint.control import coefficients
from thermint.control.basis import size
from thermint.control.coefficients import Controlled, control, largest_z, mean_zero
from thermint.control.gram import Gram
from thermint.control.plan import make_plan
from thermint.estimators.errors import batch_error
from thermint.estimators.thermodynamic import Integral, integrate
from thermint.model.draws import Draws
from thermint.paper import linear
from thermint.path.coordinates import RungMoments, rung_moments
from thermint.path.quadrature import second_order

FOLDS = 5


def targets(y: np.ndarray) -> np.ndarray:
    """What a Gram controls, [..., 4]; other functions of y stand in for the bridges."""
    return np.stack([y, y**2, np.sin(y), np.cos(y)], axis=-1)


class Table(NamedTuple):
    """Values of a target and of features at every draw, from which a Gram is summed here by hand."""

    y: np.ndarray  # [population, draw, rung]
    w: np.ndarray  # [population, draw, rung, feature]
    batches: int

    @property
    def batch(self) -> np.ndarray:
        """The batch of each draw."""
        draws = self.y.shape[1]
        return np.arange(draws) * self.batches // draws

    @property
    def fold(self) -> np.ndarray:
        """The fold of each draw."""
        return self.batch * FOLDS // self.batches

    @property
    def gram(self) -> Gram:
        rows = np.concatenate([np.ones((*self.y.shape, 1)), targets(self.y), self.w], axis=-1)
        parts = [rows[:, self.batch == b] for b in range(self.batches)]
        blocks = [rows[:, self.fold == f] for f in range(FOLDS)]
        rungs = self.y.shape[2]
        return Gram(
            frame=RungMoments(
                log_weight=np.zeros((rungs, 1)),
                mean=np.zeros((rungs, 1, 1)),
                cholesky=np.ones((rungs, 1, 1, 1)),
                centre=np.zeros(rungs),
                spread=np.ones(rungs),
            ),
            number=np.array([part.shape[1] for part in parts], dtype=float),
            first=np.stack([part.sum(axis=1) for part in parts]),
            second=np.stack([np.einsum("pnri,pnrj->rij", b, b) for b in blocks]),
        )

    def batch_means(self, values: np.ndarray) -> np.ndarray:
        """Average values [population, draw, ...] over each batch: [batch, population, ...]."""
        return np.stack([values[:, self.batch == b].mean(axis=1) for b in range(self.batches)])

    def flat(self, rung: int, keep: np.ndarray | slice = slice(None)) -> tuple[np.ndarray, np.ndarray]:
        """Targets [n, 4] and features [n, feature] of the draws to keep, all populations together."""
        y, w = self.y[:, keep, rung].ravel(), self.w[:, keep, rung].reshape(-1, self.w.shape[-1])
        return targets(y), w


def random_table(seed: int = 0, draws: int = 200, batches: int = 10, features: int = 4) -> Table:
    """Three rungs of two populations: features that explain part of a skewed target, and have a mean of their own."""
    rng = np.random.default_rng(seed)
    w = rng.normal(0.3, 1, (2, draws, 3, features)) * np.geomspace(1, 30, features)
    noise = rng.exponential(1, (2, draws, 3))
    return Table(noise + w @ rng.standard_normal(features) / 10 + 0.1 * w[..., 0] ** 2, w, batches)


def least_squares(y: np.ndarray, w: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Intercept and coefficients of y[n, target] on w[n, feature]."""
    solution = np.linalg.lstsq(np.column_stack([np.ones(len(w)), w]), y)[0]
    return solution[0], solution[1:]


def overall_mean(controlled: Controlled, number: np.ndarray) -> np.ndarray:
    """Mean over draws and populations, [rung, target]."""
    return np.average(controlled.mean.mean(axis=1), axis=0, weights=number)


# --- Coefficients in sample ---


@pytest.mark.parametrize("batches", [10, 15])  # 200 draws make 15 batches of unequal length
def test_in_sample_coefficients_are_those_of_least_squares(batches: int) -> None:
    table = random_table(batches=batches)
    gram = table.gram
    controlled = control(gram, (0, 4), fixed=True, crossfit=False)
    for rung in range(3):
        y, w = table.flat(rung)
        intercept, phi = least_squares(y, w)
        np.testing.assert_allclose(overall_mean(controlled, np.asarray(gram.number))[rung], intercept, rtol=1e-10)
        np.testing.assert_allclose(controlled.residual[rung], (y - w @ phi).var(axis=0), rtol=1e-9)
        np.testing.assert_allclose(controlled.variance[rung], y.var(axis=0), rtol=1e-9)
        values = targets(table.y[:, :, rung]) - table.w[:, :, rung] @ phi
        np.testing.assert_allclose(controlled.mean[:, :, rung], table.batch_means(values), rtol=1e-9, atol=1e-10)


def test_lower_degrees_use_the_leading_features() -> None:
    table = random_table()
    two = control(table.gram, (0, 2), fixed=True, crossfit=True)
    alone = control(Table(table.y, table.w[..., :2], table.batches).gram, (0, 2), fixed=True, crossfit=True)
    np.testing.assert_allclose(two.mean, alone.mean, rtol=1e-10)
    assert np.all(two.degree == 1)
    none = control(table.gram, (0,), fixed=True, crossfit=True)
    np.testing.assert_allclose(none.mean[..., 0], table.batch_means(table.y), rtol=1e-12)
    np.testing.assert_allclose(none.residual, none.variance, rtol=1e-10)


# --- Cross-fitting ---


def crossfitted(table: Table, rung: int) -> tuple[np.ndarray, np.ndarray]:
    """Controlled targets at every draw of a rung, [population, draw, target], by an explicit loop over folds.

    Also the coefficients of each fold, [fold, feature, target].
    """
    values, coefficients = np.empty((*table.y.shape[:2], 4)), []
    for fold in range(FOLDS):
        inside = table.fold == fold
        _, phi = least_squares(*table.flat(rung, ~inside))
        y, w = table.flat(rung, inside)
        values[:, inside] = (y - w @ phi).reshape(len(table.y), -1, 4)
        coefficients.append(phi)
    return values, np.array(coefficients)


def test_cross_fitted_means_and_variances_are_those_of_held_out_draws() -> None:
    table = random_table()
    controlled = control(table.gram, (0, 4), fixed=True, crossfit=True)
    for rung in range(3):
        values, _ = crossfitted(table, rung)
        np.testing.assert_allclose(controlled.mean[:, :, rung], table.batch_means(values), rtol=1e-8, atol=1e-9)
        np.testing.assert_allclose(controlled.residual[rung], values.reshape(-1, 4).var(axis=0), rtol=1e-8)
    in_sample = control(table.gram, (0, 4), fixed=True, crossfit=False)
    assert np.all(in_sample.residual < controlled.residual)


@pytest.mark.parametrize("fold", [0, 2, 4])
def test_values_averaged_in_a_fold_never_saw_its_coefficients(fold: int) -> None:
    table = random_table()
    inside = table.fold == fold
    y = table.y.copy()
    y[:, inside] = 50 + 10 * np.random.default_rng(1).standard_normal(y[:, inside].shape) + table.w[:, inside][..., 0]
    changed = table._replace(y=y)
    shift = changed.batch_means(y) - table.batch_means(table.y)  # zero outside the fold
    for crossfit in (True, False):
        before = control(table.gram, (0, 4), fixed=True, crossfit=crossfit).mean[..., 0]
        after = control(changed.gram, (0, 4), fixed=True, crossfit=crossfit).mean[..., 0]
        batches = np.arange(table.batches) * FOLDS // table.batches == fold
        if crossfit:
            np.testing.assert_allclose((after - before)[batches], shift[batches], rtol=1e-9)
            assert np.all(np.abs((after - before)[~batches]).max(axis=(0, 1)) > 1e-3)  # the others did see it
        else:
            assert np.abs((after - before - shift)[batches]).max() > 1e-3


@pytest.mark.parametrize("crossfit", [True, False])
def test_bias_with_few_draws_and_useless_features(crossfit: bool) -> None:
    # x ~ N(0, I) in d = 20 and g = |x|^2: by symmetry degree 1 explains nothing. In sample, chance correlations of g
    # with x pull the mean by -2 d / n (second-order expansion), and the residuals understate the variance.
    d, draws, replicates = 20, 60, 500
    rng = np.random.default_rng(2)
    means, variances = [], []
    for _ in range(replicates):
        x = rng.standard_normal((1, draws, 1, d))
        gram = Table(np.sum(x**2, axis=-1) - d, -x, FOLDS).gram
        controlled = control(gram, (0, d), fixed=True, crossfit=crossfit)
        means.append(overall_mean(controlled, np.asarray(gram.number))[0, 0])
        variances.append(controlled.residual[0, 0] / draws)
    z = np.mean(means) / (np.std(means) / np.sqrt(replicates))
    honesty = np.mean(variances) / np.var(means)  # its relative standard error is about sqrt(2 / replicates) = 6 %
    if crossfit:
        assert abs(z) < 4.5
        assert abs(honesty - 1) < 4.5 * 0.063
    else:
        assert z < -8
        assert honesty < 0.6


# --- Degrees and ridge ---


@pytest.mark.parametrize("seed", range(5))
def test_noise_features_are_left_out(seed: int) -> None:
    rng = np.random.default_rng(seed)
    table = Table(rng.standard_normal((2, 300, 4)), rng.standard_normal((2, 300, 4, 14)), 20)
    controlled = control(table.gram, (0, 2, 5, 9, 14), fixed=False, crossfit=True)
    assert np.all(controlled.degree[:, 0] == 0)
    np.testing.assert_allclose(controlled.mean[..., 0], table.batch_means(table.y), rtol=1e-12)
    # In sample they look useful: it takes held-out draws to see that they are not.
    in_sample = control(table.gram, (0, 2, 5, 9, 14), fixed=False, crossfit=False)
    assert np.any(in_sample.degree[:, 0] > 0)


def quadratic_form(seed: int) -> Draws:
    """Three rungs of N(0, I / (1 + t)) in d = 2: prior N(0, I), log likelihood -|x|^2 / 2."""
    rng = np.random.default_rng(seed)
    ladder = np.array([0.0, 0.5, 1.0])
    x = rng.standard_normal((2, 200, 3, 2)) / np.sqrt(1 + ladder)[:, None]
    square = np.sum(x**2, axis=-1)
    return Draws(ladder, x, -square / 2, -square / 2 - np.log(2 * np.pi), -x, -x)


def gram_of(draws: Draws, degree: int) -> tuple[Gram, tuple[int, ...]]:
    populations, number, rungs, d = draws.position.shape
    plan = make_plan(
        draws=number,
        populations=populations,
        rungs=rungs,
        dimension=d,
        degree=degree,
        rule="second-order",
        crossfit=True,
    )
    gram = plan.empty(rung_moments(draws), populations)
    length = number // plan.batches
    assert length * plan.batches == number
    for batch in range(plan.batches):
        gram, _ = plan.accumulate(gram, draws.block(batch * length, (batch + 1) * length), batch)
    return gram, plan.sizes


@pytest.mark.parametrize("highest", [2, 3, 4])
def test_a_quadratic_form_of_a_normal_takes_degree_2(highest: int) -> None:
    gram, sizes = gram_of(quadratic_form(0), highest)
    assert sizes == tuple(size(2, k) for k in range(highest + 1))
    controlled = control(gram, sizes, fixed=False, crossfit=True)
    assert np.all(controlled.degree[:, 0] == 2)
    assert np.all(controlled.residual[:, 0] < 1e-12)
    # Its square is a quartic (ERRATA 6): only degree 4 makes that exact.
    if highest == 4:
        assert np.all(controlled.degree[:, 1] == 4)
        assert np.all(controlled.residual[:, 1] < 1e-12)
    else:
        assert np.all(controlled.residual[:, 1] > 1e-3)


def means_of_40_draws(features: int, useful: float, replicates: int) -> tuple[np.ndarray, np.ndarray]:
    """Means with degree 0, auto and fixed, [replicate, 3], and the degrees of auto; all features but one are noise."""
    rng = np.random.default_rng(3)
    means, degrees = [], []
    for _ in range(replicates):
        w = rng.standard_normal((1, 40, 1, features))
        y = rng.standard_normal((1, 40, 1)) + useful * w[..., 0]
        gram = Table(y, w, FOLDS).gram
        auto = control(gram, (0, 1, features), fixed=False, crossfit=True)
        fixed = control(gram, (0, 1, features), fixed=True, crossfit=True)
        means.append([y.mean(), *(overall_mean(c, np.asarray(gram.number))[0, 0] for c in (auto, fixed))])
        degrees.append(auto.degree[0, 0])
    return np.array(means), np.array(degrees)


@pytest.mark.parametrize("features", [33, 42, 100])  # 33: just more than the 32 draws behind each fit, the worst case
def test_more_features_than_draws_do_little_harm(features: int) -> None:
    means, degrees = means_of_40_draws(features, useful=0.0, replicates=150)
    assert np.all(np.isfinite(means))
    plain, auto, fixed = means.std(axis=0)
    assert np.mean(degrees == 0) > 0.8
    assert auto < 1.1 * plain
    assert fixed < 1.8 * plain  # whoever insists on a degree pays for it, but the ridge keeps it from exploding
    z = means.mean(axis=0) / (means.std(axis=0) / np.sqrt(len(means)))
    assert np.abs(z).max() < 4.5


def test_more_features_than_draws_do_not_hide_a_useful_one() -> None:
    means, degrees = means_of_40_draws(100, useful=3.0, replicates=80)
    plain, auto, fixed = means.std(axis=0)
    assert np.all(degrees == 1)
    assert auto < 0.5 * plain
    assert fixed < plain


def useless_features(draws: int) -> Gram:
    rng = np.random.default_rng(6)
    return Table(rng.standard_normal((1, draws, 4)), rng.standard_normal((1, draws, 4, 20)), FOLDS).gram


def test_a_ridge_helps_with_fifteen_draws_for_each_feature() -> None:
    """Least squares would widen the held-out residual by a twelfth."""
    controlled = control(useless_features(15 * 20), (0, 20), fixed=True, crossfit=True)
    assert np.mean(controlled.residual[:, 0] / controlled.variance[:, 0]) < 1.03


def test_with_many_draws_each_fold_is_solved_once(monkeypatch: pytest.MonkeyPatch) -> None:
    solve = mock.Mock(wraps=coefficients._solve)
    monkeypatch.setattr(coefficients, "_solve", solve)
    control(useless_features(30 * 20), (0, 20), fixed=True, crossfit=True)
    assert solve.call_count == FOLDS * 4  # rungs


# --- The plug-in of the paper, read literally ---


@cache
def linear_likelihood() -> tuple[float, np.ndarray, np.ndarray]:
    """Value, gradient and Hessian at zero of the log likelihood of `linear`, which is a quadratic form."""
    function, zero = linear.model().log_likelihood, jnp.zeros(3)
    value, gradient = jax.value_and_grad(function)(zero)
    return float(value), np.asarray(gradient), np.asarray(jax.hessian(function)(zero))


def exact_linear_draws(
    seed: int, *, ladder: np.ndarray, number: int, populations: int = 2, wrong: float = 1.0
) -> Draws:
    """Independent draws from every power posterior of `linear`, by its closed form; gradients times ``wrong``."""
    rng = np.random.default_rng(seed)
    value, gradient, hessian = linear_likelihood()
    positions = []
    for t in ladder:
        covariance = np.linalg.inv(np.eye(3) - t * hessian)
        mean = t * covariance @ gradient
        positions.append(rng.multivariate_normal(mean, covariance, (populations, number), method="cholesky"))
    theta = np.stack(positions, axis=2)
    return Draws(
        ladder,
        theta,
        value + theta @ gradient + np.sum(theta @ hessian * theta, axis=-1) / 2,
        stats.norm.logpdf(theta).sum(axis=-1),
        wrong * (gradient + theta @ hessian),
        -wrong * theta,
    )


def test_cross_covariances_are_centred() -> None:
    # ERRATA 5. Degree 2 is exact for a normal posterior; the literal, uncentred E[g w] is far from it.
    ladder = np.array([0.0, 1.0])
    truth, _ = linear.integrand(ladder)
    errors = []
    for seed in range(5):
        draws = exact_linear_draws(seed, ladder=ladder, number=200, populations=1)
        gram, sizes = gram_of(draws, degree=2)
        for crossfit in (False, True):
            controlled = control(gram, sizes, fixed=True, crossfit=crossfit)
            means = gram.frame.centre + gram.frame.spread * overall_mean(controlled, np.asarray(gram.number))[:, 0]
            np.testing.assert_allclose(means, truth, rtol=0, atol=1e-9)
        # The paper's Eqn. "plug" to the letter at t = 1, with its own features.
        theta = draws.position[0, :, 1].T
        z = -(draws.grad_log_prior + draws.grad_log_likelihood)[0, :, 1].T / 2
        v = [theta[i] * z[j] + theta[j] * z[i] for j in range(3) for i in range(j + 1, 3)]
        w = np.column_stack([*z, *(theta * z - 0.5), *v])
        g = draws.log_likelihood[0, :, 1]
        phi = -np.linalg.solve(np.cov(w.T), (g[:, None] * w).mean(axis=0))
        errors.append((g + w @ phi).mean() - truth[1])
    assert np.std(errors) > 0.5


# --- The mean-zero test ---


def test_largest_z_by_hand() -> None:
    means = np.zeros((5, 2, 2, 2))
    means[..., 0] = np.arange(10.0).reshape(5, 2, 1)
    z, threshold = largest_z(means, np.zeros((2, 2)))
    expected = float(stats.ttest_1samp(np.arange(10.0), 0.0).statistic)
    np.testing.assert_allclose(z, [expected, expected])
    # Four tests, one a rung and feature, two-sided, together at 1e-3.
    assert 4 * 2 * stats.t.sf(threshold, 9) == pytest.approx(1e-3)
    # An error that is known to be larger than the scatter of batches shows is taken instead.
    z, _ = largest_z(means, np.array([[4.0, 0.0], [0.01, 0.0]]))
    np.testing.assert_allclose(z, [4.5 / 2, expected])


LADDER = np.linspace(0, 1, 11) ** 5


def test_slow_chains_widen_the_error() -> None:
    table = random_table()
    _, w = table.flat(0)
    means = table.batch_means(table.w)[:, :, 0].reshape(-1, 4)
    by_batches = np.abs(w.mean(axis=0)) / (means.std(axis=0, ddof=1) / np.sqrt(len(means)))
    by_ess = np.abs(w.mean(axis=0)) / (w.std(axis=0) / np.sqrt(3.5))  # half of the ess of g, which forgets faster
    fast, threshold = mean_zero(table.gram, 4, ess=np.full(3, 1e6))
    slow, same = mean_zero(table.gram, 4, ess=np.full(3, 7.0))
    assert fast[0] == pytest.approx(by_batches.max(), rel=1e-9)
    assert slow[0] == pytest.approx(by_ess.max(), rel=1e-9)
    assert slow[0] < threshold == same < fast[0]


def test_no_alarm_on_exact_draws() -> None:
    largest = []
    for seed in range(50):
        draws = exact_linear_draws(seed, ladder=LADDER, number=200, populations=4)
        gram, sizes = gram_of(draws, degree=2)
        z, threshold = mean_zero(gram, sizes[2], ess=np.full(len(LADDER), 800.0))
        largest.append(z.max() / threshold)
    assert max(largest) < 1
    assert max(largest) > 0.5  # 99 features, 50 times: some must come near


def log_gamma_draws(seed: int) -> Draws:
    """Exact draws of the log rate of Poisson counts with a Gamma(1.5, 1) prior: skewed at every rung."""
    counts, rungs = np.array([1, 0, 2, 1]), np.linspace(0, 1, 6)
    shape, rate = 1.5 + rungs * counts.sum(), 1 + rungs * len(counts)
    rates = np.asarray(np.random.default_rng(seed).gamma(shape, 1 / rate, (4, 1000, 6)))
    theta = np.log(rates)
    return Draws(
        rungs,
        theta[..., None],
        np.sum(stats.poisson.logpmf(counts[:, None, None, None], rates), axis=0),
        stats.gamma.logpdf(rates, 1.5) + theta,
        (counts.sum() - len(counts) * rates)[..., None],
        (1.5 - rates)[..., None],
    )


def test_no_alarm_on_a_skewed_target() -> None:
    for seed in range(50):
        result = thermint.estimate(log_gamma_draws(seed))
        assert not any("control variates" in warning for warning in result.warnings)
        assert np.all(result.rungs["degree"] > 0)


@pytest.mark.parametrize("degree", [2, "auto"])
@pytest.mark.parametrize("wrong", [1.3, 1 / 1.3])
def test_alarm_for_a_wrong_gradient(wrong: float, degree: int | str) -> None:
    for seed in range(3):
        draws = exact_linear_draws(seed, ladder=LADDER, number=400, populations=4, wrong=wrong)
        result = thermint.estimate(draws, degree=degree)
        assert "control variates switched off" in result.warnings[0]
        assert np.all(result.rungs["degree"] == 0)
        plain = thermint.estimate(draws, degree=0)
        assert result.log_evidence == pytest.approx(plain.log_evidence, rel=1e-12)
        assert result.standard_error == pytest.approx(plain.standard_error, rel=1e-9)


# --- A density that jumps to zero at a border: prior N(0, 1), likelihood e^-x on x > 0 ---

BORDER_TRUTH = 0.5 + special.log_ndtr(-1)


def border_draws(seed: int) -> Draws:
    """Exact draws of N(-t, 1) given x > 0; half of the fresh prior draws have likelihood zero."""
    rng = np.random.default_rng(seed)
    t = np.linspace(0, 1, 11)
    x = -t - special.ndtri(rng.uniform(size=(4, 500, 11)) * special.ndtr(-t))
    outside = np.zeros_like(x)
    outside[:, :, 0] = rng.uniform(size=(4, 500)) < 0.5
    one = np.ones_like(x)[..., None]
    return Draws(t, x[..., None], -x, stats.norm.logpdf(x), -one, -x[..., None], outside=outside)


def border_integral(seed: int, degree: int) -> Integral:
    """The integral with control variates whose mean nobody tested."""
    draws = border_draws(seed)
    gram, sizes = gram_of(draws, degree)
    controlled = control(gram, sizes, fixed=True, crossfit=True)
    return integrate(controlled, np.asarray(gram.number), gram.frame, np.asarray(draws.ladder), second_order)


@pytest.mark.parametrize("degree", [1, 2, 3, 4])
def test_untested_control_variates_are_wrong_at_a_border(degree: int) -> None:
    # w = -x - t is linear in g = -x: E_t[g] comes out as t, with no variance to give it away. For degree 1 only the
    # second-order correction varies.
    integral = border_integral(0, degree)
    error = integral.value + np.log(0.5) - BORDER_TRUTH
    assert error == pytest.approx(0.5 - np.log(2) - BORDER_TRUTH, abs=0.02)
    assert 1.1 < error < 1.2
    assert batch_error(integral.series).error < (1e-4 if degree == 1 else 1e-10)


@pytest.mark.parametrize("degree", [1, 2, 3, 4, "auto"])
def test_a_border_switches_control_variates_off(degree: int | str) -> None:
    for seed in range(3):
        result = thermint.estimate(border_draws(seed), degree=degree)
        assert "control variates switched off" in result.warnings[0]
        assert np.all(result.rungs["degree"] == 0)
        assert abs(result.log_evidence - BORDER_TRUTH) < 4.5 * result.standard_error
        assert result.standard_error < 0.05
