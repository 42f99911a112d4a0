"""``python -m pipeline.telemetry OVERRIDES``: the same as ``pipeline telemetry``."""

import sys

from pipeline.cli import main

if __name__ == "__main__":
    sys.exit(main(["telemetry", *sys.argv[1:]]))
