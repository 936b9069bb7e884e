"""Clients with temporary keys of roles."""
