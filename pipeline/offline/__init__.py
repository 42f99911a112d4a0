"""A recorded run, read again: listed, shown, exported, computed once more. Nothing is written to the log."""
