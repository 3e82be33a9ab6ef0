"""How draws are cut into chunks, batches and folds, and which features are made of them."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from thermint.control import basis
from thermint.control import gram as grams
from thermint.control.gram import Gram
from thermint.model.closure_constants import LARGEST_ARRAY
from thermint.model.draws import Draws
from thermint.model.options import require_whole
from thermint.path.coordinates import RungMoments
from thermint.path.quadrature import RULES
from thermint.runtime.store import storable

LONGEST_CHUNK = 250  # draws of a chain at a time: the next ones are drawn while the features of these are summed
LARGEST_GRAM = 2**30  # bytes, which small machines can still spare
LONGEST_TRACE = 10_000  # values of g that are kept of each chain; a few megabytes in all
AUTO_DEGREE = 4  # highest that "auto" tries: the square of a quadratic g needs it
DRAWS_PER_FEATURE = 3  # fewer cannot determine the coefficients
FOLDS = 5  # of cross-fitting: coefficients see four fifths of the draws, at the cost of five fits


@storable
@dataclass(frozen=True)
class Plan:
    """The numbers behind an estimate, fixed before the first draw."""

    length: int  # draws of a chunk
    chunks: int  # of a batch
    batches: int  # of a population
    sizes: tuple[int, ...]  # number of features of degree 0, 1, ...
    fixed: bool  # the same degree at every rung
    cross: bool  # trial functions with products of different coordinates
    rule: str
    crossfit: bool

    @property
    def draws(self) -> int:
        """Draws of one population and rung, in all."""
        return self.length * self.chunks * self.batches

    @property
    def thinning(self) -> int:
        """Keep one in so many values of the trace of g."""
        return -(-self.draws // LONGEST_TRACE)

    @property
    def degree(self) -> int:
        """The highest degree of the trial functions."""
        return len(self.sizes) - 1

    def doubled(self) -> Plan:
        """Plan for batches twice as long."""
        return replace(self, chunks=2 * self.chunks)

    def empty(self, frame: RungMoments, populations: int) -> Gram:
        """Make the Gram that this plan fills."""
        return grams.empty(
            frame, populations=populations, batches=self.batches, folds=FOLDS, degree=self.degree, cross=self.cross
        )

    def accumulate(self, gram: Gram, draws: Draws, batch: int, every: int = 1) -> tuple[Gram, np.ndarray]:
        """Add a chunk of draws to a batch; see `gram.accumulate`."""
        return grams.accumulate(gram, draws, batch, degree=self.degree, cross=self.cross, every=every)


def make_plan(
    *,
    draws: int,
    populations: int,
    rungs: int,
    dimension: int,
    degree: int | str,
    rule: str,
    crossfit: bool,
    components: int = 1,
    length: int | None = None,
) -> Plan:
    """Read the options of an estimate.

    ``components`` are those of the reference; ``length`` is that of a chunk, where it is settled already.

    Raises:
        ValueError: an option that cannot work; the message names it and what would.
    """
    require_whole("draws", draws, at_least=2 * FOLDS)  # fewer give no error bar
    require_whole("populations", populations, at_least=1)
    if rule not in RULES:
        raise ValueError(f"rule = {rule!r}: it must be one of {', '.join(map(repr, RULES))}.")
    fixed = degree != "auto"
    if fixed:
        require_whole("degree", degree, at_least=0)
    sizes, cross = _features(draws * populations, rungs, dimension, components, degree)

    need = _bytes(sizes[-1], rungs)
    if need > LARGEST_GRAM:
        raise ValueError(
            f"degree = {degree} makes {sizes[-1]} features of {dimension} parameters at each of {rungs} rungs, and "
            f"their cross-products take {need / 2**30:.1f} GiB. Use a lower degree or fewer rungs."
        )
    if not crossfit and sizes[-1] >= draws * populations - 1:
        raise ValueError(
            f"degree = {degree} has {sizes[-1]} coefficients to fit to {draws * populations} draws a rung. Increase "
            "draws, use a lower degree, or crossfit=True."
        )
    batches, per_batch = batched(draws, populations)
    length = length or chunk_length(per_batch, populations=populations, rungs=rungs, dimension=dimension)
    return Plan(length, -(-per_batch // length), batches, sizes, fixed, cross, rule, crossfit)


def without_gradients(degree: int | str) -> int:
    """Return the only degree that there is for a model without gradients, or refuse others."""
    if degree not in ("auto", 0):
        raise ValueError(
            f"degree = {degree!r}: control variates need the gradient of the log likelihood, which this model does not "
            "have. Use degree=0, or give thermint.from_numpy a gradient or finite_differences=True."
        )
    return 0


def batched(draws: int, populations: int) -> tuple[int, int]:
    """Return the number of batches of a population, and of draws in each."""
    batches = FOLDS * min(5 if populations == 1 else 4, draws // FOLDS)
    return batches, -(-draws // batches)


def chunk_length(draws: int, *, populations: int, rungs: int, dimension: int) -> int:
    """Return the length of the chunks that so many draws are cut into, nearly equal ones."""
    fitting = LARGEST_ARRAY // (populations * rungs * 8 * (3 * dimension + 5))  # as `population` records them
    return -(-draws // -(-draws // max(1, min(LONGEST_CHUNK, fitting))))


def _bytes(size: int, rungs: int) -> int:
    """Memory of a Gram with so many features."""
    return FOLDS * rungs * (1 + grams.TARGETS + size) ** 2 * 8


def _features(draws: int, rungs: int, d: int, components: int, degree: int | str) -> tuple[tuple[int, ...], bool]:
    """Return the number of features for each degree, and whether they include cross terms.

    "auto" goes as high as the number of draws and the memory allow; where not even degree 2 fits, cross terms go.
    """

    def sizes(highest: int, cross: bool) -> list[int]:
        return [basis.size(d, k, cross, components) for k in range(highest + 1)]

    def supported(size: int) -> bool:
        return size <= draws / DRAWS_PER_FEATURE and _bytes(size, rungs) <= LARGEST_GRAM / 2

    if degree != "auto":
        return tuple(sizes(int(degree), cross=True)), True
    cross = supported(sizes(2, cross=True)[2])
    return tuple(size for size in sizes(AUTO_DEGREE, cross) if supported(size)), cross
