"""Real clients against real lakes, directly and through a node."""
