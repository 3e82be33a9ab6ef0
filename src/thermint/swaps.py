"""Exchange of states between rungs; see `thermint.sampling.swaps`."""

from thermint.sampling.swaps import even_odd, log_ratio, random_pair, random_pairs

__all__ = ["even_odd", "log_ratio", "random_pair", "random_pairs"]
