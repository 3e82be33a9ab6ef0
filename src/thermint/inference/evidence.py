"""From a model to a log evidence with an error bar, in one call."""

from __future__ import annotations

import pathlib
from typing import Any

import numpy.typing as npt

from thermint.control.plan import without_gradients
from thermint.inference.checkpoint import Checkpoint, open_journal
from thermint.inference.decisions import decide
from thermint.inference.options import Budget, Call, Options, read_ladder
from thermint.inference.rounds import warned
from thermint.interop import checked_model
from thermint.interop.callback import reraise_user_error
from thermint.kernels import Kernel
from thermint.model.result import Evidence
from thermint.runtime.devices import device_layout
from thermint.runtime.hosts import peers
from thermint.runtime.progress import Progress
from thermint.runtime.session import Session
from thermint.sampling.population import Swap
from thermint.sampling.swaps import even_odd


@reraise_user_error()
def evidence(
    model: Any,
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
    target_error: float | None = None,
    max_evaluations: int | None = None,
    max_seconds: float | None = None,
    seed: int = 0,
    progress: bool | None = None,
    checkpoint: str | pathlib.Path | Checkpoint | None = None,
    keep_draws: bool = False,
) -> Evidence:
    """Compute the log evidence of a model, with an error bar.

    Ctrl-C ends it early: with the answer so far and a warning, if there is one.

    Args:
        model: a `Model`, or a PyMC or Bambi model as it is.
        reference: where the path starts. "fitted": at a mixture fitted to draws of the posterior, which a short run
            from the prior finds. "prior": at the prior, as in the paper. "auto": as "fitted", checked against the prior
            path; if that seems to have found more, it is run in full too, and if it has, a warning says which of the
            two this is.
        ladder: inverse temperatures from 0 to 1, or a number of rungs; by default as many as the path needs.
        kernel: move within a rung, from `thermint.kernels`; by default one that suits the path.
        swap: move between rungs, from `thermint.swaps`.
        degree: of the polynomial trial functions, 0 for none. "auto" takes, at every rung, the degree up to 4 that
            predicts held-out draws best.
        rule: quadrature along the ladder: "trapezoid", "second-order", or "lobatto". By default that of the ladder; and
            where the bridge form of stepping stones, which has none, has a clearly smaller error, its answer is taken.
        crossfit: fit the coefficients to other draws than they are applied to. False is the paper's plug-in.
        draws: per rung and population, after warm-up; rounded up to fill the last batch.
        populations: independent replicas of the whole ladder; the paper has one.
        target_error: standard error to reach, by rounds of doubling length.
        max_evaluations: of the likelihood. No round begins that would take more; the first is shortened to fit.
        max_seconds: no further round begins that would take longer, as judged by the last one.
        seed: the same seed gives the same answer.
        progress: show a progress bar; by default in terminals and notebooks, and elsewhere a line for every round.
        checkpoint: a file to save the run in, after every round and twice a minute. If it is there, the run goes on
            from it, and ends with the same bits as if it had never stopped. Model and options must be the same, but
            ``target_error``, ``max_evaluations`` and ``max_seconds``, which may be changed to go on for longer.
        keep_draws: keep all draws of the last round, from all rungs of the path, in ``result.draws``.

    Raises:
        ValueError: an option that cannot work, or a checkpoint that is damaged or of another run; the message names
            the difference.

    Example:
        >>> import thermint
        >>> result = thermint.evidence(thermint.paper.radiata.model(1), draws=200)
        >>> low, high = result.interval(0.999)
        >>> low < thermint.paper.radiata.log_evidence(1) < high
        True
    """
    model = checked_model(model)
    options = Options(
        reference=reference,
        ladder=read_ladder(ladder, reference),
        kernel=kernel,
        swap=swap,
        degree=degree if model.differentiable else without_gradients(degree),
        rule=rule,
        crossfit=crossfit,
        draws=draws,
        populations=populations,
        keep_draws=keep_draws,
        seed=seed,
    )
    budget = Budget(target_error, max_evaluations, max_seconds)
    device_layout(populations)  # refuses those that several processes cannot share
    journal = open_journal(checkpoint, model, vars(options), vars(budget))
    call = Call(model, options, budget, Session(Progress(progress), journal))
    call.plan(options.ladder, draws)  # options that cannot work are refused now, not after the search for the posterior
    with call.session, peers(journal.path):
        result = decide(call)
    return warned(result, journal.problem) if journal.problem else result
