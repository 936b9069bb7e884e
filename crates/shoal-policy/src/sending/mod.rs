//! When to send: transfers with deadlines, messages in batches, flushes, and requests to servers that fail.

pub mod circuit_breaker;
pub mod cleaning;
pub mod outbox;
pub mod pace;
