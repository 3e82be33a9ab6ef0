"""Draws from a sampler of your own: random-walk Metropolis in NumPy at every rung, then ``thermint.estimate``.

Any sampler will do that draws from prior * likelihood^t for each t of a ladder; so will any way to get the gradients,
which the sampler need not use but control variates do. Run it with ``python examples/other_sampler.py``.
"""

import numpy as np

import thermint

# Straight line through five points, normal noise of s.d. 0.5 and a standard normal prior: the truth is known.
X = np.column_stack([np.ones(5), np.arange(5.0) - 2])
y = np.array([0.1, 0.9, 1.3, 2.2, 2.9])
covariance = 0.25 * np.eye(5) + X @ X.T
truth = -0.5 * (y @ np.linalg.solve(covariance, y) + np.linalg.slogdet(2 * np.pi * covariance)[1])

ladder = thermint.ladders.power(21)
precision = np.eye(2) + ladder[:, None, None] * X.T @ X / 0.25  # of each rung
step = 1.5 * np.linalg.cholesky(np.linalg.inv(precision))


def densities(theta):
    """Log likelihood and log prior at theta[..., 2]."""
    log_likelihood = -0.5 * np.sum((y - theta @ X.T) ** 2, axis=-1) / 0.25 - 2.5 * np.log(2 * np.pi * 0.25)
    return log_likelihood, -0.5 * np.sum(theta**2, axis=-1) - np.log(2 * np.pi)


def metropolis(draws, populations, seed=0, thinning=5):
    """Draw at every rung, [population, draw, rung, 2]; the first fifth is thrown away."""
    rng = np.random.default_rng(seed)
    theta = rng.standard_normal((populations, len(ladder), 2))
    kept = []
    for iteration in range(thinning * draws * 5 // 4):
        proposal = theta + np.einsum("rij,prj->pri", step, rng.standard_normal(theta.shape))
        (new, new_prior), (old, old_prior) = densities(proposal), densities(theta)
        accepted = np.log(rng.uniform(size=old.shape)) < ladder * (new - old) + new_prior - old_prior
        theta = np.where(accepted[..., None], proposal, theta)
        if iteration % thinning == 0:
            kept.append(theta)
    return np.stack(kept[-draws:], axis=1)


if __name__ == "__main__":
    position = metropolis(draws=500, populations=4)
    log_likelihood, log_prior = densities(position)
    grad_log_likelihood = (y - position @ X.T) @ X / 0.25
    draws = thermint.Draws(ladder, position, log_likelihood, log_prior, grad_log_likelihood, -position)
    for method, degree in (("cti", "auto"), ("cti", 0), ("mbar", 0)):
        result = thermint.estimate(draws, method=method, degree=degree)
        print(
            f"{method}, degree {degree}: {result.log_evidence:.6f} ± {result.standard_error:.6f}  (truth {truth:.6f})"
        )
