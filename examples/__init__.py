"""Clients for environments of your own; see README.md beside this file."""
