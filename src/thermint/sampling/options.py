"""How a path is sampled: what the caller of a sampler chooses, and the default kernel."""

from __future__ import annotations

from dataclasses import dataclass

from thermint.kernels import Kernel
from thermint.sampling.population import Swap
from thermint.sampling.swaps import even_odd
from thermint.sampling.warmup import WarmupSchedule


@dataclass(frozen=True)
class SamplerOptions:
    """Options of a sampler.

    Args:
        populations: independent replicas of the ladder.
        kernel: the move within a rung; by default one that suits the path.
        swap: the move between rungs.
        length: draws of one chunk.
        schedule: lengths and gains of the rounds of the warm-up; by default fewer if the covariance is known.
        adapt_ladder: let the warm-up move the rungs.
        cheap_to_run: so little is computed that the program is compiled fast, rather than optimised.
    """

    populations: int = 4
    kernel: Kernel | None = None
    swap: Swap = even_odd
    length: int = 25
    schedule: WarmupSchedule | None = None
    adapt_ladder: bool = False
    cheap_to_run: bool = False
