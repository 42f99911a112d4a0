"""Runs the modules of this folder that have a ``main``: all, or those named as arguments."""

import importlib
import pkgutil
import sys

import benchmarks


def main(chosen: list[str]) -> None:
    """Run them in the order of their names."""
    names = sorted(module.name for module in pkgutil.iter_modules(benchmarks.__path__))
    modules = {name: importlib.import_module(f"benchmarks.{name}") for name in names if not name.startswith("_")}
    known = [name for name, module in modules.items() if hasattr(module, "main")]
    unknown = sorted(set(chosen) - set(known))
    if unknown:
        sys.exit(f"no benchmark is named {', '.join(unknown)}; there are {', '.join(known)}")
    for name in chosen or known:
        print(f"== {name}", flush=True)
        modules[name].main()


if __name__ == "__main__":
    main(sys.argv[1:])
