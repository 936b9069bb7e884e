//! Orders of operators about objects that are written back: to flush them, and to take them out of packs.

mod flush;
mod packs;

pub use self::flush::{FlushOrders, FlushProgress};
pub use self::packs::{OrderRefused, PackOrder, PackOrders, PackProgress};
