"""A new front end is one file and one entry in the table of front ends."""

from __future__ import annotations

import sys
from types import ModuleType

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import thermint
from thermint import Model, interop
from thermint.cli.loading import _is_model


def from_toy(model: Toy) -> Model:
    """Read a model of the library ``toy``: x ~ N(0, 1), and y ~ N(x, 1) is observed."""

    def log_normal(z: jax.Array) -> jax.Array:
        return -0.5 * jnp.sum(z**2) - 0.5 * jnp.log(2 * jnp.pi)

    return Model(
        log_likelihood=lambda theta: log_normal(model.y - theta),
        log_prior=log_normal,
        sample_prior=lambda key: jax.random.normal(key, (1,)),
    )


class Toy:
    """The class of models of a library called ``toy``."""

    __module__ = "toy.core"

    def __init__(self, y: float) -> None:
        self.y = y


@pytest.fixture
def front_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """Add the file ``interop/toy.py``, and its entry."""
    module = ModuleType("thermint.interop.toy")
    module.from_toy = from_toy  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, module.__name__, module)
    monkeypatch.setitem(interop.FRONT_ENDS, "toy", "Toy")


@pytest.mark.usefixtures("front_end")
def test_models_of_a_new_front_end_are_taken_as_they_are() -> None:
    y = 0.7
    truth = -0.25 * y**2 - 0.5 * np.log(4 * np.pi)  # y ~ N(0, 2)
    result = thermint.evidence(Toy(y), draws=100, populations=2, progress=False)
    assert abs(result.log_evidence - truth) < 5 * result.standard_error
    assert result.standard_error < 1e-6  # a normal posterior is exact but for rounding
    assert thermint.from_toy(Toy(y)).dimension == 1  # type: ignore[attr-defined]
    assert _is_model(Toy(y))  # the command line takes it too


def test_without_its_entry_it_is_refused_by_name() -> None:
    with pytest.raises(TypeError, match="a PyMC model or a Bambi model, not Toy"):
        thermint.evidence(Toy(0.0))
    with pytest.raises(AttributeError, match="from_toy"):
        _ = thermint.from_toy  # type: ignore[attr-defined]


@pytest.mark.usefixtures("front_end")
def test_messages_name_all_front_ends() -> None:
    with pytest.raises(TypeError, match="a PyMC model or a Bambi model or a Toy model, not int"):
        thermint.evidence(3)
