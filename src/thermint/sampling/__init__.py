"""Population MCMC: noise, moves between rungs, populations, warm-up and the sampler."""
