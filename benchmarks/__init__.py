"""Measurements of speed and accuracy. Each module prints its own settings; run one with ``python -m benchmarks.NAME``."""
