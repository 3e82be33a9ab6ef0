"""What matplotlib draws of a result or a comparison; see `thermint.report.plots`."""

from thermint.report.plots import coefficients, comparison, estimators, integrand, overview, ratio, swaps, traces

__all__ = ["coefficients", "comparison", "estimators", "integrand", "overview", "ratio", "swaps", "traces"]
