"""The one-call front: from a model, or from draws, to a log evidence with an error bar."""

from __future__ import annotations

import time
from functools import partial
from importlib.metadata import version
from itertools import islice, pairwise

import numpy as np
import numpy.typing as npt

from thermint._runtime import require_float64
from thermint.draws import Draws, check_draws, concatenate
from thermint.frame import frame_of
from thermint.kernels import Kernel
from thermint.ladders import as_ladder
from thermint.model import Model
from thermint.options import name_of, require_kernel, require_whole
from thermint.plan import LONGEST_CHUNK, make_plan
from thermint.population import Swap
from thermint.progress import Progress
from thermint.result import Evidence
from thermint.sampler import check_model, default_kernel, make_sampler
from thermint.summary import Moves, average, moves_of, so_far, summarise
from thermint.swaps import even_odd


def sample(
    model: Model,
    ladder: int | npt.ArrayLike | None = None,
    *,
    draws: int = 1000,
    populations: int = 4,
    kernel: Kernel | None = None,
    swap: Swap = even_odd,
    seed: int = 0,
) -> Draws:
    """Sample every power posterior of a ladder by population MCMC, and keep all draws.

    Args:
        model: the model.
        ladder: inverse temperatures from 0 to 1, or a number of rungs; by default the paper's 51.
        draws: per rung and population, after a warm-up that is discarded.
        populations: independent replicas of the whole ladder.
        kernel: move within a rung, from `thermint.kernels`; by default mmala for a model with a metric, else mala.
        swap: move between rungs, from `thermint.swaps`.
        seed: the same seed gives the same draws.

    Example:
        >>> import thermint
        >>> draws = thermint.sample(thermint.paper.linear.model(), ladder=5, draws=50, populations=2)
        >>> draws.position.shape
        (2, 50, 5, 3)
    """
    check_model(model)
    require_kernel(kernel)
    require_whole("seed", seed, at_least=0)
    ladder = as_ladder(ladder)
    require_whole("draws", draws, at_least=1)
    require_whole("populations", populations, at_least=1)
    length = -(-draws // -(-draws // LONGEST_CHUNK))
    sampler = make_sampler(model, ladder, length=length, populations=populations, kernel=kernel, swap=swap, seed=seed)
    return concatenate(list(islice(sampler.chunks, -(-draws // length)))).block(0, draws)


def estimate(
    draws: Draws,
    *,
    method: str = "cti",
    degree: int | str = "auto",
    rule: str | None = None,
    crossfit: bool = True,
) -> Evidence:
    """Estimate the log evidence from draws, made by `sample` or by any other sampler.

    Args:
        draws: from every power posterior of a ladder.
        method: "cti", the controlled thermodynamic integral.
        degree: of the polynomial trial functions, 0 for none, or "auto".
        rule: quadrature along the ladder, "trapezoid" or "second-order" (the default).
        crossfit: fit the coefficients to other draws than they are applied to. False is the paper's plug-in, which
            biases the answer slightly towards what the draws show.

    Example:
        >>> import thermint
        >>> draws = thermint.sample(thermint.paper.linear.model(), draws=100, populations=2)
        >>> result = thermint.estimate(draws, degree=2, rule="trapezoid")
        >>> result.mc_error < 1e-9  # degree 2 is exact for a normal posterior
        True
    """
    begin = time.perf_counter()
    require_float64()
    if method != "cti":
        raise ValueError(f'method = {method!r}: it must be "cti".')
    draws = check_draws(draws)
    ladder = np.asarray(draws.ladder)
    populations, number, rungs, dimension = draws.position.shape
    plan = make_plan(
        draws=number,
        populations=populations,
        rungs=rungs,
        dimension=dimension,
        degree=degree,
        rule=rule,
        crossfit=crossfit,
    )
    gram = plan.empty(frame_of(draws), populations)
    edges = np.linspace(0, number, plan.batches + 1).round().astype(int)
    longest = np.diff(edges).max()
    moves = []
    for batch, (start, stop) in enumerate(pairwise(edges)):
        # Batches may differ by one draw; a neighbour of weight 0 fills the shorter ones: one program serves all.
        first = min(start, number - longest)
        weight = np.arange(first, first + longest)
        weight = ((weight >= start) & (weight < stop)).astype(float)
        gram = plan.accumulate(gram, draws.block(first, first + longest), batch, weight)
        moves.append(moves_of(draws.block(start, stop)))
    return summarise(
        gram,
        ladder,
        np.asarray(draws.log_likelihood),
        moves,
        plan,
        evaluations=0,
        begin=begin,
        settings={"method": method},
    )


def evidence(
    model: Model,
    *,
    reference: str = "auto",
    ladder: int | npt.ArrayLike | None = None,
    kernel: Kernel | None = None,
    swap: Swap = even_odd,
    degree: int | str = "auto",
    rule: str | None = None,
    crossfit: bool = True,
    draws: int = 1000,
    populations: int = 4,
    seed: int = 0,
    progress: bool | None = None,
) -> Evidence:
    """Compute the log evidence of a model, with an error bar.

    Args:
        model: the model.
        reference: where the path starts: "prior". "auto" means the same for now.
        ladder: inverse temperatures from 0 to 1, or a number of rungs; by default the paper's 51.
        kernel: move within a rung, from `thermint.kernels`; by default mmala for a model with a metric, else mala.
        swap: move between rungs, from `thermint.swaps`.
        degree: of the polynomial trial functions, 0 for none. "auto" takes, at every rung, the degree up to 2 that
            predicts held-out draws best.
        rule: quadrature along the ladder, "trapezoid" or "second-order" (the default).
        crossfit: fit the coefficients to other draws than they are applied to. False is the paper's plug-in.
        draws: per rung and population, after warm-up; rounded up to fill the last batch.
        populations: independent replicas of the whole ladder; the paper has one.
        seed: the same seed gives the same answer.
        progress: show a progress bar; by default if standard error is a terminal.

    Example:
        >>> import thermint
        >>> result = thermint.evidence(thermint.paper.radiata.model(1), draws=200)
        >>> low, high = result.interval(0.999)
        >>> low < thermint.paper.radiata.log_evidence(1) < high
        True
    """
    begin = time.perf_counter()
    if reference not in ("auto", "prior"):
        raise ValueError(f'reference = {reference!r}: it must be "auto" or "prior".')
    check_model(model)
    require_kernel(kernel)
    require_whole("seed", seed, at_least=0)
    ladder = as_ladder(ladder)
    plan = make_plan(
        draws=draws,
        populations=populations,
        rungs=len(ladder),
        dimension=model.dimension,
        degree=degree,
        rule=rule,
        crossfit=crossfit,
    )
    with Progress(progress, draws=plan.draws) as bar:
        sampler = make_sampler(
            model,
            ladder,
            length=plan.length,
            populations=populations,
            kernel=kernel,
            swap=swap,
            seed=seed,
            on_round=bar.warmed_up,
        )
        gram = plan.empty(sampler.frame, populations)
        traces: list[np.ndarray] = []
        moves: list[Moves] = []
        drawn = 0
        for batch in range(plan.batches):
            pieces = []
            for piece in islice(sampler.chunks, plan.chunks):
                gram = plan.accumulate(gram, piece, batch)
                pieces.append(moves_of(piece))
                traces.append(np.array(piece.log_likelihood[:, -drawn % plan.thinning :: plan.thinning]))
                drawn += plan.length
            moves.append(average(pieces))
            bar.drawn(drawn, partial(so_far, gram, ladder, plan, moves))
    g = np.concatenate(traces, axis=1)
    return summarise(
        gram,
        ladder,
        g,
        moves,
        plan,
        evaluations=sampler.evaluations + plan.draws * populations * len(ladder),
        begin=begin,
        settings={
            "method": "cti",
            "reference": "prior",
            "kernel": name_of(kernel or default_kernel(model)),
            "swap": name_of(swap),
            "seed": seed,
            "parameters": list(model.parameter_names),
            "versions": {package: version(package) for package in ("thermint", "jax")},
        },
    )
