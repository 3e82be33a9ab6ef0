"""Settings of a result: attributes for the library, names for users, plain values for files."""

from __future__ import annotations

import json
from dataclasses import FrozenInstanceError, replace
from pathlib import Path

import pytest
from targets import NORMAL, exact_draws

import thermint
from thermint import Evidence
from thermint.model.settings import Settings
from thermint.runtime import store

RESULT = thermint.estimate(exact_draws(NORMAL, 0), method="bridge", degree=1)


def test_users_read_them_by_name() -> None:
    settings = RESULT.settings
    assert settings["method"] == settings.method == "bridge"
    assert dict(settings)["degree"] == 1
    assert settings["kernel"] is None  # the draws were given
    with pytest.raises(KeyError, match="kernels"):
        settings["kernels"]
    with pytest.raises(FrozenInstanceError):
        settings.method = "cti"  # type: ignore[misc]


def test_they_are_plain_values_in_json() -> None:
    written = json.loads(json.dumps(RESULT.as_dict()))["settings"]
    assert Settings.of(written) == RESULT.settings


def test_a_saved_result_has_them(tmp_path: Path) -> None:
    RESULT.save(tmp_path / "result.npz")
    assert Evidence.load(tmp_path / "result.npz").settings == RESULT.settings


def test_results_that_earlier_versions_saved_have_them(tmp_path: Path) -> None:
    """They had a dictionary, without what does not apply."""
    old = replace(RESULT)
    known = {name: value for name, value in dict(RESULT.settings).items() if value is not None}
    object.__setattr__(old, "settings", known)
    store.write(tmp_path / "result.npz", old)
    assert Evidence.load(tmp_path / "result.npz").settings == RESULT.settings


def test_a_reference_of_any_kind_describes_itself() -> None:
    settings = Settings.of({"reference": "fitted", "components": 2, "knots": 7}, seed=3)
    assert (settings.reference, settings.seed) == ("fitted", 3)
    assert settings["components"] == settings.described["components"] == 2
    assert dict(settings)["knots"] == 7
    assert "described" not in dict(settings)
    assert Settings.of(dict(settings)) == settings
