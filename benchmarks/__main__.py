"""Runs every module of this folder that has a ``main``, one after another."""

import importlib
import pkgutil

import benchmarks


def main() -> None:
    """Run them in the order of their names."""
    for module in sorted(pkgutil.iter_modules(benchmarks.__path__), key=lambda item: item.name):
        if module.name.startswith("_"):
            continue
        run = getattr(importlib.import_module(f"benchmarks.{module.name}"), "main", None)
        if run is not None:
            print(f"== {module.name}", flush=True)
            run()


if __name__ == "__main__":
    main()
