"""``python -m thermint``."""

from thermint.cli import app

app()
