//! The lake as clients and caches see it.
