//! Forecasts jobs from histories of jobs: which jobs will run, when they are submitted, and what they read.
//!
//! The planner of Netco (`SoCC` 2018, sections 2.2 and 3.1) takes "recurring job arrivals, their deadlines
//! and inputs" from "logs of previous job executions". This crate is that part:
//!
//! ```text
//! logs ──▶ read ──▶ History ──▶ Templates ──▶ Forecast      what will run in a window
//!                      │            ▲
//!                      └─ backtest ─┴──────▶ Report        how much of the last day was foreseen
//! ```
//!
//! The crate performs no I/O of its own: callers open the files, and times are arguments. Times are in UTC;
//! the UTC offset of a schedule or a path in local time is learned with it.

pub mod backtest;
pub mod error;
pub mod forecast;
pub mod format;
pub mod moment;
mod names;
mod path;
pub mod read;
pub mod recurrence;
pub mod run;
mod stats;

pub use error::HistoryError;

pub use format::Format;
pub use moment::Moment;

pub use backtest::{Report, backtest, backtest_window};
pub use forecast::{Forecast, Window, forecast};
pub use recurrence::Templates;
pub use run::{History, Input, Run};
pub use stats::Spread;
