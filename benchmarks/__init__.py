"""Benchmarks: ``python -m benchmarks`` runs them all, ``python -m benchmarks.wire`` one."""
