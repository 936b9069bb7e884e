//! Text that people read and write.

pub mod amount;
pub mod causes;
pub mod hex;
pub mod spelling;
pub mod stars;
pub mod terminal;
pub mod words;
