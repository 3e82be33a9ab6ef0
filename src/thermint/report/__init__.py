"""Plots, and HTML pages on results."""

from thermint.report.page import write

__all__ = ["write"]
