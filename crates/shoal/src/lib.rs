//! A cooperative cache that extends an S3 data lake across a data center.
//!
//! `ARCHITECTURE.md` tells the life of a GET on one page; the modules below are its stations.

pub mod admin;
pub mod backing;
pub mod blocks;
pub mod catalog;
pub mod chance;
pub mod channel;
pub mod cli;
pub mod clock;
pub mod cluster;
pub mod config;
pub mod cooperation;
pub mod dirty;
pub mod embedded_lake;
pub mod encoding;
pub mod endpoint;
pub mod etag;
pub mod fair;
pub mod fetch;
pub mod flights;
pub mod freshness;
pub mod front;
pub mod gateway;
pub mod handoff;
pub mod identity;
pub mod lake_watch;
pub mod lookup;
pub mod membership;
pub mod object;
pub mod origin;
pub mod peer;
pub mod pieces;
pub mod prefix;
pub mod read;
pub mod s3;
pub mod s3_uri;
pub mod secret;
pub mod shutdown;
pub mod sigv2;
pub mod sigv4;
pub mod split;
pub mod store;
pub mod target;
pub mod write;
