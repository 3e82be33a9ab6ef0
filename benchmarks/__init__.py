"""Measurements of speed and accuracy, each printing its own settings: ``python -m benchmarks.NAME``."""
