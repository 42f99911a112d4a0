"""``python -m pipeline.services``: for set-up scripts, and for what a detached start runs."""

import argparse
import os
import sys

from pipeline.errors import MissingToolError, PipelineError
from pipeline.services.commands import services_down, services_fetch, services_status, services_up


def main(arguments: list[str]) -> int:
    """Run one sub-command; returns the exit status."""
    parser = argparse.ArgumentParser(prog="python -m pipeline.services", description=__doc__)
    parser.add_argument("command", choices=["up", "down", "status", "fetch"])
    parser.add_argument("--kind", choices=["embedded", "local"], default="local")
    parser.add_argument("--folder", default=".services")
    parser.add_argument("--detach", action="store_true")
    parser.add_argument("--secrets", help="a folder of secrets, for services with TLS and users")
    parser.add_argument(
        "--optional",
        action="store_true",
        help="fetch: a missing tool is only said, except where CI is set",
    )
    options = parser.parse_args(arguments)
    try:
        if options.command == "up":
            return services_up(options.folder, options.kind, options.detach, options.secrets)
        if options.command == "down":
            return services_down(options.folder)
        if options.command == "status":
            return services_status(options.folder)
        return services_fetch(options.kind)
    except MissingToolError as error:
        print(error, file=sys.stderr)
        return 0 if options.optional and not os.environ.get("CI") else 1
    except PipelineError as error:
        print(error, file=sys.stderr)
        return 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
