"""Find the posterior: ascents, a short run from the prior, modes, and references fitted to them."""
