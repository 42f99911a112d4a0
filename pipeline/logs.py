"""Logging: one line a record on stderr, through structlog."""

import logging
import sys

import structlog


def configure_logging(level: str = "info") -> None:
    """Send this process's log to stderr; colours only on a terminal."""
    handler = logging.StreamHandler(sys.stderr)
    shared: list[structlog.types.Processor] = [
        structlog.stdlib.add_log_level,
        structlog.stdlib.add_logger_name,
        structlog.processors.TimeStamper(fmt="%H:%M:%S", utc=False),
    ]
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=shared,
            processors=[
                structlog.stdlib.ProcessorFormatter.remove_processors_meta,
                structlog.dev.ConsoleRenderer(colors=sys.stderr.isatty(), pad_level=False),
            ],
        )
    )
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level.upper())
    # The libraries' own chatter is not this program's.
    for name in ("botocore", "urllib3", "werkzeug", "matplotlib", "PIL", "filelock"):
        logging.getLogger(name).setLevel(logging.WARNING)
