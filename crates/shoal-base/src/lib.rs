//! Five small modules that every crate of Shoal shares. A sixth needs as good a reason as these have.

pub mod chance;
pub mod clock;
pub mod encoding;
pub mod piece_buffer;
pub mod secret;
