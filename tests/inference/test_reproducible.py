"""The same seed gives the same answer, whatever is shown of it and however it is cut into chunks."""

import io
from typing import Any

import numpy as np
import pytest
from rich import console
from targets import SKEWED_2

import thermint
from thermint.control import plan

original = console.Console
OPTIONS: dict[str, Any] = {"draws": 200, "populations": 2, "seed": 3}


@pytest.fixture(scope="module")
def expected() -> thermint.Evidence:
    return thermint.evidence(SKEWED_2.model, **OPTIONS)


def same(a: thermint.Evidence, b: thermint.Evidence) -> bool:
    return (a.log_evidence, a.standard_error, a.warnings) == (b.log_evidence, b.standard_error, b.warnings)


def test_to_the_last_bit(expected: thermint.Evidence) -> None:
    again = thermint.evidence(SKEWED_2.model, **OPTIONS)
    assert same(again, expected)
    np.testing.assert_array_equal(again.rungs, expected.rungs)
    assert thermint.evidence(SKEWED_2.model, **OPTIONS | {"seed": 4}).log_evidence != expected.log_evidence


def test_whether_or_not_anyone_watches(expected: thermint.Evidence, monkeypatch: pytest.MonkeyPatch) -> None:
    shown = io.StringIO()
    monkeypatch.setattr(console, "Console", lambda **_: original(file=shown, force_terminal=True))
    watched = thermint.evidence(SKEWED_2.model, **OPTIONS, progress=True)
    assert "log evidence" in shown.getvalue()
    assert same(watched, expected)


@pytest.mark.parametrize("longest", [2, 5])
def test_in_chunks_of_any_length(longest: int, expected: thermint.Evidence, monkeypatch: pytest.MonkeyPatch) -> None:
    """The sums are added up in another order, so that the last digits differ."""
    monkeypatch.setattr(plan, "LONGEST_CHUNK", longest)
    other = thermint.evidence(SKEWED_2.model, **OPTIONS)
    assert other.settings["draws"] == expected.settings["draws"]
    assert other.log_evidence == pytest.approx(expected.log_evidence, abs=1e-9)
    assert other.standard_error == pytest.approx(expected.standard_error, rel=1e-6)
    assert other.warnings == expected.warnings
