"""BlackJAX's adaptive tempered SMC with HMC, tuned between stages by its inner-kernel tuning.

2000 particles, the next temperature where the effective sample size falls to half, ten moves of five leapfrog steps a
stage (ten is the package's default), inverse mass matrix = weighted covariance of the particles, step size d^(-1/4) in
those units. The evidence is the sum of its log_likelihood_increment; it has no error. Effort multiplies the particles.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import blackjax
import jax
import jax.numpy as jnp
import numpy as np
from blackjax.smc import extend_params, resampling
from jax import Array

from benchmarks.peers.tasks import FLOOR, Answer, Task

PARTICLES, MOVES, LEAPFROGS, TARGET_ESS = 2000, 10, 5, 0.5


def prepare(task: Task) -> Callable[[int, float], Answer]:
    """Return run(seed, effort)."""
    model, d = task.model, task.dimension

    def log_likelihood(theta: Array) -> Array:
        value = model.log_likelihood(theta)
        return jnp.where(value > FLOOR, value, FLOOR)

    def tuned(key: Array, state: Any, info: Any) -> dict[str, Array]:
        covariance = jnp.cov(state.particles, rowvar=False, aweights=state.weights, ddof=0)
        return _parameters(jnp.atleast_2d(covariance))

    @partial(jax.jit, static_argnums=1)
    def smc(key: Array, number: int) -> tuple[Array, Array]:
        prior_key, key = jax.random.split(key)
        particles = jax.vmap(model.sample_prior)(jax.random.split(prior_key, number))
        algorithm = blackjax.inner_kernel_tuning(
            smc_algorithm=blackjax.adaptive_tempered_smc,
            logprior_fn=model.log_prior,
            loglikelihood_fn=log_likelihood,
            mcmc_step_fn=partial(blackjax.hmc.build_kernel(), num_integration_steps=LEAPFROGS),
            mcmc_init_fn=blackjax.hmc.init,
            resampling_fn=resampling.systematic,
            mcmc_parameter_update_fn=tuned,
            initial_parameter_value=_parameters(jnp.cov(particles, rowvar=False)),
            num_mcmc_steps=MOVES,
            target_ess=TARGET_ESS,
        )

        def going_on(carry: Any) -> Array:
            return carry[0].sampler_state.tempering_param < 1

        def stage(carry: Any) -> Any:
            state, log_evidence, stages = carry
            state, info = algorithm.step(jax.random.fold_in(key, stages), state)
            return state, log_evidence + info.log_likelihood_increment, stages + 1

        _, log_evidence, stages = jax.lax.while_loop(
            going_on, stage, (algorithm.init(particles), jnp.zeros(()), jnp.zeros((), dtype=int))
        )
        return log_evidence, stages

    def _parameters(covariance: Array) -> dict[str, Array]:
        return extend_params({"inverse_mass_matrix": covariance, "step_size": d**-0.25})

    def run(seed: int, effort: float) -> Answer:
        number = round(effort * PARTICLES)
        log_evidence, stages = smc(jax.random.key(seed), number)
        evaluations = int(stages) * number * (MOVES * LEAPFROGS + 2)  # and one each for weights and temperature
        settings = f"{number} particles, {MOVES} moves of {LEAPFROGS} leapfrog steps, target ESS {TARGET_ESS:g}"
        return Answer(float(log_evidence), np.nan, evaluations, settings)

    return run
