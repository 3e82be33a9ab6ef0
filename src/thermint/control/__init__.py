"""Variance reduction: Stein features, their sums, and the coefficients of control variates."""
