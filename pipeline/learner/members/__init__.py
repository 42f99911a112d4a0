"""Who takes part in synchronous training, who is there, and how far each one's rollout has come."""
