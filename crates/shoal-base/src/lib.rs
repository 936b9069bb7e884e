//! Ten small modules that crates of Shoal share. An eleventh needs an equally good reason.

pub mod amount;
pub mod chance;
pub mod clock;
pub mod encoding;
pub mod piece_buffer;
pub mod secret;
pub mod seeded;
pub mod small_file;
pub mod spelling;
pub mod terminal;
