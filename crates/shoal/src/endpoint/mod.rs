//! An S3 store we call: the lake today, the tier later. One type, configured twice.
