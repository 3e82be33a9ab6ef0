"""The command line."""

from thermint.cli.commands import app

__all__ = ["app"]
