//! Text that people read and write.

pub mod amount;
pub mod hex;
pub mod spelling;
pub mod terminal;
