"""What outlives the process: journal, checkpoints, the run's folder, and the way back from them."""
