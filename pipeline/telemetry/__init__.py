"""The stream processor: episodes in, moving averages, windows, figure and metrics out."""
