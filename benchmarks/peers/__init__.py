"""Thermint and the systems people use today, on the same problems: ``python -m benchmarks.peers``."""
