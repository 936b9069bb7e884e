"""A real Spark application that announces its reads to Shoal: what hints gain, and what they cost."""
