"""Hadoop's S3A at lakes and at nodes that write back: Spark with its committers, and the tests of its contract."""
