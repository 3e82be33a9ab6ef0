"""Is our bridge sampling that of R's bridgesampling? The same NUTS draws of Pima 1 go into both.

python -m benchmarks.peers.check_bridge [--repetitions 20]

Needs R with the package bridgesampling (Debian: r-cran-bridgesampling). Both fit a normal to the first halves of the
chains; what is left of chance is in the draws from that normal, new in each repetition.
"""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import jax
import numpy as np
from numpy.typing import NDArray

from benchmarks.peers.bridge import CHAINS, DRAWS, WARMUP, bridge, nuts
from benchmarks.peers.tasks import TASKS, in_batches
from thermint.paper import pima

R = """
suppressMessages(library(bridgesampling))
set.seed(1)
X <- as.matrix(read.csv("X.csv", header = FALSE))
y <- scan("y.csv", quiet = TRUE)
draws <- as.matrix(read.csv("draws.csv", header = FALSE))
d <- ncol(draws)
names <- paste0("beta", 1:d)
colnames(draws) <- names
chains <- coda::as.mcmc.list(lapply(split(1:nrow(draws), rep(1:%(chains)d, each = nrow(draws) / %(chains)d)),
                                    function(rows) coda::mcmc(draws[rows, ])))
log_posterior <- function(beta, data) {
  eta <- as.vector(data$X %%*%% beta)
  sum(data$y * eta - ifelse(eta > 0, eta, 0) - log1p(exp(-abs(eta)))) + sum(dnorm(beta, 0, %(scale)g, log = TRUE))
}
for (i in 1:%(repetitions)d) {
  fit <- bridge_sampler(chains, log_posterior = log_posterior, data = list(X = X, y = y), silent = TRUE,
                        lb = setNames(rep(-Inf, d), names), ub = setNames(rep(Inf, d), names))
  cat(sprintf("%%.10f %%.10f\\n", fit$logml, sqrt(error_measures(fit)$re2)))
}
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repetitions", type=int, default=20)
    options = parser.parse_args()
    if not _has_package():
        print("R or its package bridgesampling is missing: nothing was compared (Debian: r-cran-bridgesampling)")
        return
    task = TASKS["pima-1"]()
    model = task.model

    def log_posterior(theta: jax.Array) -> jax.Array:
        return model.log_likelihood(theta) + model.log_prior(theta)

    chain, density = nuts(log_posterior), in_batches(log_posterior)
    keys = jax.random.split(jax.random.key(0), CHAINS)
    draws = np.stack([np.asarray(chain(key, model.sample_prior(key), DRAWS)[0])[WARMUP:] for key in keys])
    ours = np.array([bridge(draws, density, np.random.default_rng(i)) for i in range(options.repetitions)])
    theirs = _in_r(draws, options.repetitions)
    print(f"Pima 1, {CHAINS} chains of {DRAWS} draws, {options.repetitions} repetitions; truth {task.log_evidence:.5f}")
    for name, found in (("ours", ours), ("bridgesampling", theirs)):
        value, error = found.mean(axis=0)
        spread = found[:, 0].std(ddof=1)
        print(f"{name:14}  log evidence {value:.5f}, spread {spread:.5f}, reported error {error:.5f}")
    apart = ours[:, 0].mean() - theirs[:, 0].mean()
    allowed = np.sqrt(sum(found[:, 0].var(ddof=1) for found in (ours, theirs)) / options.repetitions)
    print(f"difference {apart:+.5f} ± {allowed:.5f}: {'they agree' if abs(apart) < 4 * allowed else 'THEY DISAGREE'}")
    sys.exit(int(abs(apart) > 4 * allowed))


def _has_package() -> bool:
    if shutil.which("Rscript") is None:
        return False
    asked = subprocess.run(["Rscript", "-e", "library(bridgesampling)"], capture_output=True)
    return asked.returncode == 0


def _in_r(draws: NDArray, repetitions: int) -> NDArray[np.float64]:
    """Log evidence and error by R, [repetition, 2]."""
    X, y = pima._data(1)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        np.savetxt(folder / "X.csv", X, delimiter=",", fmt="%.17g")
        np.savetxt(folder / "y.csv", y, fmt="%g")
        np.savetxt(folder / "draws.csv", draws.reshape(-1, draws.shape[-1]), delimiter=",", fmt="%.17g")
        script = R % {"chains": CHAINS, "scale": pima.TAU**-0.5, "repetitions": repetitions}
        (folder / "bridge.R").write_text(script)
        done = subprocess.run(["Rscript", "bridge.R"], cwd=folder, capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(f"R failed: {done.stderr.strip()}")
    return np.array([line.split() for line in done.stdout.splitlines()], dtype=float)


if __name__ == "__main__":
    main()
