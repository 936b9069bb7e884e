"""A rolling upgrade of a cluster from one build to another, and back."""
