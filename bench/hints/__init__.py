"""A real Spark application that tells Shoal what it reads: what hints gain, and what they cost."""
