"""Kafka-based streaming pipeline for reinforcement-learning experience: the log is the state."""

__version__ = "0.1.0"
