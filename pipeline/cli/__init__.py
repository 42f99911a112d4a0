"""The one console command, ``pipeline``: the composition root of every role."""

from pipeline.cli.main import main

__all__ = ["main"]
