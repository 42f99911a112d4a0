"""The health check of a role's container: its metrics answer, and say that its loop turned a moment ago.

Usage: healthy.py PORT METRIC MAX_AGE_S, where METRIC holds the Unix time of the loop's last turn.
"""

import sys
import time
from urllib.request import urlopen

TIMEOUT_S = 5.0


def main(arguments: list[str]) -> int:
    """0 where the metric is at most so old; 1 otherwise, with a line that says why."""
    port, name, max_age = int(arguments[0]), arguments[1], float(arguments[2])
    try:
        with urlopen(f"http://127.0.0.1:{port}/metrics", timeout=TIMEOUT_S) as answer:
            lines = answer.read().decode().splitlines()
    except OSError as error:
        print(f"port {port} does not answer: {error}")
        return 1
    values = [float(line.split()[1]) for line in lines if line.startswith(f"{name} ")]
    if not values:
        print(f"there is no {name} among the metrics")
        return 1
    age = time.time() - values[0]
    print(f"{name}: {age:.1f} s ago")
    return 0 if age <= max_age else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
