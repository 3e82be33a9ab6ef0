"""Mixtures in one and two dimensions that tests share."""

import numpy as np

from thermint.path.mixture import make_mixture

NARROW, LEANING = 0.25 * np.eye(2), np.array([[1.0, 0.6], [0.6, 1.0]])
TWO = np.array([[-4.0, -4.0], [4.0, 4.0]])
ONE_D = {
    "normal": make_mixture(np.ones(1), np.array([[1.0]]), np.array([[[4.0]]])),
    "student": make_mixture(np.ones(1), np.array([[1.0]]), np.array([[[4.0]]]), 3),
    "mixture": make_mixture(np.array([0.3, 0.7]), np.array([[-3.0], [2.0]]), np.array([[[0.25]], [[1.0]]])),
}
TWO_D = {
    "normal": make_mixture(np.ones(1), np.array([[1.0, -1.0]]), LEANING[None]),
    "student": make_mixture(np.ones(1), np.array([[1.0, -1.0]]), LEANING[None], 3),
    "mixture": make_mixture(np.array([0.3, 0.7]), TWO, np.stack([NARROW, LEANING])),
    "students": make_mixture(np.array([0.3, 0.7]), TWO, np.stack([NARROW, LEANING]), 5),
}
# x = sinh(u): the trapezoid rule in u is exact to many digits, and reaches far into the tails.
GRID = np.linspace(-14.0, 14.0, 449)
POINTS, VOLUME = np.sinh(GRID), np.cosh(GRID) * (GRID[1] - GRID[0])
