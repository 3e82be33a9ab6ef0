"""Eight schools (Rubin 1981) in NumPyro, centred and not: one model written in two ways has one evidence.

And is there any difference between the schools at all? The third model says no.
"""

import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
from numpyro.handlers import reparam
from numpyro.infer.reparam import LocScaleReparam
from scipy import stats

import thermint

EFFECT = jnp.array([28.0, 8.0, -3.0, 7.0, -1.0, 1.0, 18.0, 12.0])
ERROR = jnp.array([15.0, 10.0, 16.0, 11.0, 9.0, 11.0, 10.0, 18.0])


def centred():
    """Write the effects as they are."""
    mean = numpyro.sample("mean", dist.Normal(0.0, 5.0))
    scale = numpyro.sample("scale", dist.HalfCauchy(5.0))
    with numpyro.plate("school", len(EFFECT)):
        effect = numpyro.sample("effect", dist.Normal(mean, scale))
        numpyro.sample("observed", dist.Normal(effect, ERROR), obs=EFFECT)


def all_alike():
    """Have one effect for all schools."""
    mean = numpyro.sample("mean", dist.Normal(0.0, 5.0))
    with numpyro.plate("school", len(EFFECT)):
        numpyro.sample("observed", dist.Normal(mean, ERROR), obs=EFFECT)


non_centred = reparam(centred, config={"effect": LocScaleReparam(0)})


def by_integration() -> float:
    """Log evidence with the effects integrated by hand, and mean and scale on a grid."""
    mean, angle = np.meshgrid(np.linspace(-40, 40, 1601), np.linspace(0, np.pi / 2, 2002)[:-1], indexing="ij")
    scale = 5 * np.tan(angle)  # whose half-Cauchy prior is uniform in the angle
    density = stats.norm.logpdf(mean, 0, 5) - np.log(np.pi / 2)
    for effect, error in zip(np.asarray(EFFECT), np.asarray(ERROR), strict=True):
        density += stats.norm.logpdf(effect, mean, np.hypot(error, scale))
    return float(np.log(np.trapezoid(np.trapezoid(np.exp(density), angle[0]), mean[:, 0])))


if __name__ == "__main__":
    for name, model in {"centred": centred, "non-centred": non_centred, "all alike": all_alike}.items():
        result = thermint.evidence(thermint.from_numpyro(model), progress=False)
        print(f"{name}: log evidence {result.log_evidence:.4f} ± {result.standard_error:.4f}")
        for warning in result.warnings:
            print(f"  {warning}")
    print(f"the first two by numerical integration: {by_integration():.4f}")
