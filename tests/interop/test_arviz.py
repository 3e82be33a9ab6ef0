"""Results as ArviZ reads them: posterior draws against closed forms, statistics against the model, files."""

import json
import pickle

import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest
import xarray as xr
from scipy import stats

import thermint
from thermint import Draws, Model, ladders
from thermint.estimators.path_summary import MAX_KEPT

Y = np.array([[1.0, -0.5], [0.4, 0.3], [1.3, -1.1]])
# mean ~ N(0, 2^2), observations of unit noise: precision 1/4 + 3. The data say nothing of the scale.
MODEL = Model.from_prior(
    {"scale": dist.LogNormal(0.5, 0.8), "mean": dist.Normal(jnp.zeros(2), 2.0)},
    lambda p: dist.Normal(p["mean"], 1.0).log_prob(Y).sum(),
)


@pytest.fixture(scope="module", params=["prior", "fitted"])
def result(request):
    ladder = 11 if request.param == "prior" else 5
    return thermint.evidence(MODEL, reference=request.param, ladder=ladder, draws=200, seed=2)


def test_the_posterior_has_the_names_and_moments_of_the_model(result):
    az = pytest.importorskip("arviz")
    tree = result.to_datatree()
    posterior = tree["posterior"].to_dataset()
    assert dict(posterior.sizes) == {"chain": 4, "draw": 200, "mean_dim_0": 2}
    assert posterior["scale"].dims == ("chain", "draw")
    assert posterior["scale"].min() > 0
    precision = 1 / 4 + len(Y)
    expected = {"mean": Y.sum(axis=0) / precision, "log_scale": 0.5}
    draws = posterior[["mean"]].assign(log_scale=np.log(posterior["scale"]))
    deviation = {"mean": 1 / np.sqrt(precision), "log_scale": 0.8}
    sizes = az.ess(draws, method="mean")
    for name, truth in expected.items():
        effective = np.asarray(sizes[name])
        error = deviation[name] / np.sqrt(effective)
        assert np.all(np.abs(draws[name].mean(("chain", "draw")) - truth) < 4 * error)
        assert np.all(np.abs(draws[name].std(("chain", "draw")) / deviation[name] - 1) < 4 / np.sqrt(effective))


def test_statistics_are_those_of_the_model_not_of_the_path(result):
    tree = result.to_datatree()
    posterior, sampled = tree["posterior"].to_dataset(), tree["sample_stats"].to_dataset()
    mean, scale = posterior["mean"].to_numpy(), posterior["scale"].to_numpy()
    log_likelihood = stats.norm.logpdf(Y, mean[:, :, None]).sum(axis=(2, 3))
    # The density of log scale and mean, which is where the chain lives.
    log_prior = stats.norm.logpdf(np.log(scale), 0.5, 0.8) + stats.norm.logpdf(mean, 0, 2).sum(axis=2)
    np.testing.assert_allclose(sampled["total_log_likelihood"], log_likelihood, atol=1e-9)
    np.testing.assert_allclose(sampled["log_prior"], log_prior, atol=1e-9)
    np.testing.assert_allclose(sampled["lp"], log_likelihood + log_prior, atol=1e-9)
    assert sampled["acceptance_rate"].mean() == pytest.approx(result.rungs["acceptance"].iloc[-1])


def test_the_evidence_and_its_tables_are_there(result):
    group = result.to_datatree()["evidence"]
    for name in ("log_evidence", "standard_error", "mc_error", "quadrature_error", "evaluations", "seconds"):
        assert group.attrs[name] == getattr(result, name)
    assert json.loads(group.attrs["warnings"]) == list(result.warnings)
    assert json.loads(group.attrs["settings"])["reference"] == result.settings["reference"]
    assert json.loads(group.attrs["diagnostics"])["round_trips"] == result.diagnostics["round_trips"]
    table = group.to_dataset().drop_dims("estimator").to_dataframe()
    assert table.equals(result.rungs)
    assert group["estimated_log_evidence"].sel(estimator="bridge") == result.estimates["log_evidence"]["bridge"]


def test_it_goes_through_a_file_and_arviz(result, tmp_path):
    az = pytest.importorskip("arviz")
    pytest.importorskip("h5netcdf")
    tree = result.to_datatree()
    tree.to_netcdf(tmp_path / "result.nc", engine="h5netcdf")
    with xr.open_datatree(tmp_path / "result.nc", engine="h5netcdf") as again:
        xr.testing.assert_equal(again, tree)
        assert again["evidence"].attrs["log_evidence"] == result.log_evidence
    data = az.from_datatree(tree) if hasattr(az, "from_datatree") else tree  # ArviZ 1 reads the tree itself
    assert all(group in data for group in ("posterior", "sample_stats", "evidence"))
    assert sorted(az.summary(data).index) == ["mean[0]", "mean[1]", "scale"]


def test_draws_stay_out_of_json_and_survive_pickling(result):
    assert "posterior" not in json.loads(json.dumps(result.as_dict()))
    again = pickle.loads(pickle.dumps(result))
    xr.testing.assert_identical(again.to_datatree(), result.to_datatree())


def test_draws_from_elsewhere_are_thinned_and_have_no_names():
    """N(0, 1) prior, observation 1.5 of unit noise, drawn by NumPy; the sampler does not say what it accepted."""
    ladder = ladders.power(3)
    rng = np.random.default_rng(0)
    theta = 1.5 * ladder / (1 + ladder) + rng.standard_normal((2, 3000, 3)) / np.sqrt(1 + ladder)
    draws = Draws(
        ladder,
        theta[..., None],
        np.asarray(stats.norm.logpdf(1.5, theta)),
        np.asarray(stats.norm.logpdf(theta)),
        (1.5 - theta)[..., None],
        -theta[..., None],
    )
    tree = thermint.estimate(draws, degree=0).to_datatree()
    found = tree["posterior"]["theta"]
    assert found.dims == ("chain", "draw", "theta_dim_0")
    assert found.sizes["chain"] * found.sizes["draw"] <= MAX_KEPT
    np.testing.assert_array_equal(found[..., 0], theta[:, ::2, -1])
    assert set(tree["sample_stats"].data_vars) == {"lp", "total_log_likelihood", "log_prior"}


def test_a_result_without_draws_has_the_evidence_alone():
    result = thermint.anneal(MODEL, 11, particles=64)
    tree = result.to_datatree()
    assert list(tree.children) == ["evidence"]
    assert tree["evidence"].attrs["log_evidence"] == result.log_evidence
