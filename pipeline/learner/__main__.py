"""``python -m pipeline.learner OVERRIDES``: the same as ``pipeline learner``."""

import sys

from pipeline.cli import main

if __name__ == "__main__":
    sys.exit(main(["learner", *sys.argv[1:]]))
