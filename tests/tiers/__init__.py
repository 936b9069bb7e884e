"""Tiers on real stores: the suite of stores, bytes on disks, and disks that go."""
