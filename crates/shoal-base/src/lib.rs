//! Fourteen small modules that crates of Shoal share. A fifteenth needs an equally good reason.

pub mod amount;
pub mod chance;
pub mod clock;
pub mod encoding;
pub mod forecast;
pub mod hex;
pub mod moment;
pub mod piece_buffer;
pub mod secret;
pub mod seeded;
pub mod send_permit;
pub mod small_file;
pub mod spelling;
pub mod terminal;
