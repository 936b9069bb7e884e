"""Client programs of many SDKs, for the suites that differ in how clients get their keys."""
