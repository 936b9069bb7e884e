//! Seven small modules that crates of Shoal share. An eighth needs as good a reason as these have.

pub mod chance;
pub mod clock;
pub mod encoding;
pub mod piece_buffer;
pub mod secret;
pub mod seeded;
pub mod spelling;
