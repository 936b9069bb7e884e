//! The S3 protocol as such. Nothing here knows of nodes, lakes or dirty objects: everything else may use it.

pub mod xml;
