import jax
jax.config.update("jax_enable_x64", True)
from thermint import paper
from thermint.model import Model
