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
pub mod conditions;
pub mod config;
pub mod cooperation;
pub mod dirty;
pub mod embedded_lake;
pub mod encoding;
pub mod endpoint;
pub mod fair;
pub mod fetch;
pub mod flights;
pub mod freshness;
pub mod front;
pub mod gateway;
pub mod handoff;
pub mod host;
pub mod http;
pub mod lake_watch;
pub mod lookup;
pub mod membership;
pub mod metrics;
pub mod origin;
pub mod peer;
pub mod pieces;
pub mod read;
pub mod reload;
pub mod s3;
pub mod secret;
pub mod sending;
pub mod shielded;
pub mod shutdown;
pub mod split;
pub mod store;
pub mod throttle;
pub mod write;
