//! Policies that know only keys, sizes and the order of uses.

pub(crate) mod belady;
pub(crate) mod duel;
pub(crate) mod lfu;
pub(crate) mod lru;
pub(crate) mod s3_fifo;
pub(crate) mod sieve;
