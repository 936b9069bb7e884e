//! Fourteen small modules that crates of Shoal share. A fifteenth needs an equally good reason.

pub mod clock;
pub mod encoding;
pub mod forecast;
pub mod moment;
pub mod piece_buffer;
mod random;
pub mod secret;
pub mod send_permit;
pub mod small_file;
mod text;

pub use random::{chance, seeded};
pub use text::{amount, hex, spelling, terminal};
