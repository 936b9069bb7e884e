//! What an operator should know of this node among others: which datagrams it does not hear, whether any seed answers, and
//! which nodes are configured differently.
//!
//! The membership notes it and warns; the admin pages and the metrics show it.

mod seeds;
mod strangers;
mod terms;

use std::sync::Arc;

pub use self::seeds::Seeds;
pub(super) use self::strangers::ClockDifference;
pub use self::strangers::{Seen, Strangers};
pub use self::terms::{Agreement, Part, Terms};

/// All of it. Each part has a lock of its own, taken for a moment and never on the way of a read.
#[derive(Debug, Default)]
pub struct Notices {
    /// Datagrams that were not heard.
    pub strangers: Strangers,
    /// The nodes that were to lead to the others.
    pub seeds: Seeds,
    /// Whose configuration differs.
    pub agreement: Agreement,
}

impl Notices {
    /// Nothing to know yet.
    pub fn new() -> Arc<Self> {
        Arc::default()
    }
}
