//! Blocks on this node's disk: files, index, checksums, recovery.
