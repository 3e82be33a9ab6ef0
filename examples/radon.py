"""Radon in houses: one mean for all counties, one for each, or something between? Three PyMC models, as they are.

Gelman and Hill's question, with simulated log radon levels of 60 houses in 8 counties, whose means have a standard
deviation of 0.35. Run it with ``python examples/radon.py``.
"""

import numpy as np
import pymc as pm

import thermint

rng = np.random.default_rng(20)
COUNTIES = [f"county {letter}" for letter in "ABCDEFGH"]
county = np.sort(rng.integers(len(COUNTIES), size=60))
basement = rng.integers(2, size=60)
log_radon = rng.normal(1.3, 0.35, len(COUNTIES))[county] + 0.6 * basement + rng.normal(0, 0.75, size=60)


def _model(kind: str) -> pm.Model:
    with pm.Model(coords={"county": COUNTIES}) as model:
        mean = pm.Normal("mean", 1.0, 1.0)
        if kind == "pooled":
            level = mean
        else:
            spread = 1.0 if kind == "unpooled" else pm.HalfNormal("spread", 1.0)
            level = mean + spread * pm.Normal("county_offset", dims="county")[county]
        effect = pm.Normal("basement", 0.0, 1.0)
        noise = pm.HalfNormal("noise", 1.0)
        pm.Normal("log_radon", level + effect * basement, noise, observed=log_radon)
    return model


pooled, unpooled, hierarchical = map(_model, ("pooled", "unpooled", "hierarchical"))

if __name__ == "__main__":
    models = {"pooled": pooled, "unpooled": unpooled, "hierarchical": hierarchical}
    print(thermint.compare(models, draws=300))
