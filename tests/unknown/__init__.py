"""Clients whose keys no node knows."""
