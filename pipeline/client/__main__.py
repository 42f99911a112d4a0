"""``python -m pipeline.client OVERRIDES``: the same as ``pipeline client``."""

import sys

from pipeline.cli import main

if __name__ == "__main__":
    sys.exit(main(["client", *sys.argv[1:]]))
