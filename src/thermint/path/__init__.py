"""Where a path of tempered densities starts and how it is cut: references, coordinates, ladders, quadrature."""
