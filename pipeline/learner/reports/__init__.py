"""What people are told: figures, trackers, metrics, actors in trouble."""
