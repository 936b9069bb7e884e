//! Eighteen small modules that crates of Shoal share. A nineteenth needs an equally good reason.

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
#[cfg(feature = "tls")]
pub mod tls;

pub use random::{chance, seeded};
pub use text::{amount, causes, hex, spelling, stars, terminal, words};
