"""What it takes to repeat a run."""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from typing import Any

from thermint.runtime.store import storable


@storable
@dataclass(frozen=True)
class Settings:
    """What it takes to repeat a run; None where it does not apply. ``settings["kernel"]`` is ``settings.kernel``.

    Attributes:
        method: of the answer: as in `thermint.estimate`, or "anneal".
        ladder: inverse temperatures.
        draws: of each population and rung, in the last round.
        populations: independent replicas of the whole ladder.
        degree: of the control variates, or "auto".
        rule: quadrature along the ladder.
        crossfit: whether coefficients were fitted to other draws than they were applied to.
        reference: where the path starts, "prior" or "fitted".
        described: what a fitted reference says of itself: ``components``, and their ``dof`` (None where normal).
        kernel: move within a rung.
        swap: move between rungs.
        gradients: whether the model has them.
        seed: of the random numbers.
        target_error: standard error that was asked for.
        rounds: how many there were.
        particles: of annealed importance sampling.
        devices: on which populations ran.
        parameters: names of the model's coordinates.
        versions: of packages.
    """

    method: str = "cti"
    ladder: list[float] = field(default_factory=list)
    draws: int | None = None
    populations: int | None = None
    degree: int | str | None = None
    rule: str | None = None
    crossfit: bool | None = None
    reference: str | None = None
    described: dict[str, Any] = field(default_factory=dict)
    kernel: str | None = None
    swap: str | None = None
    gradients: bool = True
    seed: int | None = None
    target_error: float | None = None
    rounds: int | None = None
    particles: int | None = None
    devices: int | None = None
    parameters: list[str] | None = None
    versions: dict[str, str] = field(default_factory=dict)

    @classmethod
    def of(cls, values: dict[str, Any], **others: Any) -> Settings:
        """Make settings of named values; those that are no attributes describe the reference."""
        names = {one.name for one in fields(cls)}
        known = {name: value for name, value in values.items() if name in names}
        return cls(**known, **others, described={name: values[name] for name in values if name not in names})

    def keys(self) -> list[str]:
        """Return the names, so that ``dict(settings)`` works."""
        return [one.name for one in fields(self) if one.name != "described"] + list(self.described)

    def __getitem__(self, name: str) -> Any:
        if name not in self.keys():
            raise KeyError(name)
        return self.described[name] if name in self.described else getattr(self, name)
