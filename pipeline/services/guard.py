"""Runs one command and ends it when whoever asked for it is gone.

Run as a program: ``python -I guard.py PID_FILE COMMAND …``. Standard input is a pipe whose other
end the asking process holds and never writes to: its end of file means that the asking process has
ended, in whatever way (kill -9 included), so the command is ended too. On Linux the command also
dies with the guard. The guard passes SIGTERM on and exits with the command's status.

Only the standard library is imported, so that a guard costs a few milliseconds and 10 MB.
"""

import contextlib
import ctypes
import os
import signal
import subprocess
import sys
import threading
from functools import partial
from pathlib import Path

GRACE_SECONDS = 20.0
_PR_SET_PDEATHSIG = 1


def main(arguments: list[str]) -> int:
    """Run the command until it ends or the pipe does; returns its exit status."""
    pid_file, *command = arguments
    # Ctrl-C reaches the whole terminal group; the order of shutdown is for the asking process to
    # decide.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    tie = partial(_die_with, os.getpid()) if sys.platform == "linux" else None
    child = subprocess.Popen(command, stdin=subprocess.DEVNULL, preexec_fn=tie)
    signal.signal(signal.SIGTERM, lambda _number, _frame: child.terminate())
    Path(pid_file).write_text(str(child.pid))
    threading.Thread(target=_watch, args=(child,), daemon=True).start()
    status = child.wait()
    with contextlib.suppress(OSError):
        Path(pid_file).unlink()
    return status if status >= 0 else 128 - status


def _watch(child: "subprocess.Popen[bytes]") -> None:
    while os.read(0, 4096):
        pass
    child.terminate()
    if hasattr(signal, "SIGCONT"):  # a paused command would never see the SIGTERM
        child.send_signal(signal.SIGCONT)
    try:
        child.wait(GRACE_SECONDS)
    except subprocess.TimeoutExpired:
        child.kill()


def _die_with(guard: int) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    # The guard may have gone between fork and prctl; then nobody would send the signal.
    if os.getppid() != guard:
        os._exit(1)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
