//! The one module that draws random numbers; everything else takes chance as an argument.
#![allow(
    clippy::disallowed_methods,
    reason = "they are drawn here so that they are drawn nowhere else"
)]

/// A number uniform in `[0, 1)`.
pub fn unit() -> f64 {
    fastrand::f64()
}

/// Sixty-four random bits. Not for secrets.
pub fn bits() -> u64 {
    fastrand::u64(..)
}
