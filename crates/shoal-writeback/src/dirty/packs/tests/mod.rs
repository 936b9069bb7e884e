//! Tests of packs: the requests about them, the map on a node, and packed objects.

mod at_lake;
mod commit;
pub(crate) mod lab;
mod map;
mod object;
mod rebuild;
mod rules;
mod tables;
