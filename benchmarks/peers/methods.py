"""Who takes part: where each method's code is, what it needs, and in which virtual environment it runs.

A method's module has a function ``prepare(task)``, which returns ``run(seed, effort) -> Answer``. What it compiles,
there or in the first run, counts as compilation.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import NamedTuple

MAIN = "main"  # the environment of whoever runs the benchmark
NONE: Mapping[str, str] = MappingProxyType({})


class Method(NamedTuple):
    """One way to the evidence."""

    title: str  # how tables call it
    module: str  # in benchmarks.peers
    requirements: tuple[str, ...] = ()  # beside thermint, for pip
    environment: str = MAIN
    package: str = ""  # whose version is reported; "" where the method is ours
    efforts: tuple[float, ...] = (1.0, 4.0)  # multiples of the work of the recommended settings; the first is run first
    peer: bool = True  # counts for "best peer"
    cannot: Mapping[str, str] = NONE  # task: why it cannot be run


METHODS: dict[str, Method] = {
    "thermint": Method("thermint", "thermint_", package="thermint", efforts=(1.0, 0.1, 4.0), peer=False),
    "laplace": Method("Laplace importance sampling", "laplace", efforts=(1.0, 100.0), peer=False),
    "bridge": Method("NUTS and bridge sampling", "bridge", package="numpyro"),
    "mbar": Method("MBAR on tempered draws", "mbar", ("pymbar>=4.0.3",), package="pymbar"),
    "blackjax": Method("BlackJAX tempered SMC", "blackjax_smc", ("blackjax==1.7.1",), "peers", "blackjax"),
    "pymc": Method("PyMC sample_smc", "pymc_smc", ("pymc>=5.28",), package="pymc"),
    "dynesty": Method("dynesty", "dynesty_", ("dynesty==3.1.0",), "peers", "dynesty"),
    "ultranest": Method("UltraNest", "ultranest_", ("ultranest==4.6.3",), "peers", "ultranest"),
    "nautilus": Method("nautilus", "nautilus_", ("nautilus-sampler==1.0.6",), "peers", "nautilus-sampler"),
    "jaxns": Method("JAXNS", "jaxns_", ("jaxns==3.0.0",), "peers", "jaxns"),
    # A plain torch would bring gigabytes of CUDA on some indexes; this is a CPU build where there is one.
    "pocomc": Method("pocoMC", "pocomc_", ("pocomc==1.2.6", "torch==2.13.0"), "peers", "pocomc"),
    # Wants setuptools 68, which torch does not.
    "harmonic": Method("harmonic", "harmonic_", ("harmonic==1.3.1", "emcee==3.1.6"), "harmonic", "harmonic"),
    "reddemcee": Method("reddemcee", "reddemcee_", ("reddemcee==1.0",), "peers", "reddemcee"),
}
