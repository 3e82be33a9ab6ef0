"""Settings of the test run: a compilation cache of its own, shared between runs and workers."""

import os
from pathlib import Path

os.environ.setdefault("THERMINT_CACHE", str(Path(__file__).parent.parent / ".pytest_cache" / "jax"))
