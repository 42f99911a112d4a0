"""The table of docs/results.md: this pipeline and stable-baselines3 learn the same environments on the same machine.

``python -m benchmarks.results`` runs what is missing and writes the page; see ``__main__.py``.
"""
