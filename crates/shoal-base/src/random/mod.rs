//! Random numbers: of the system, and from a seed.

pub mod chance;
pub mod seeded;
