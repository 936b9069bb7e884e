"""Tests of the Python client: against a port that answers as it is told, and against real nodes."""
