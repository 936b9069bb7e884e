//! `shoal-planner`: a request as JSON on stdin, a plan as JSON on stdout.

use std::io::{Read, Write};
use std::num::NonZeroU32;
use std::process::ExitCode;
use std::time::Duration;

use clap::Parser;
use shoal_plan::lp::SolveError;
use shoal_plan::{PlanError, Request};
use shoal_planner::HighsSolver;

/// The largest request that is read: a day of 20,000 jobs has 20 MB.
const REQUEST_BYTES_MAX: u64 = 1 << 30;

/// Plans a request of shoal: JSON on stdin, the plan as JSON on stdout.
///
/// Exit codes: 0 a plan, 2 the request makes no sense, 3 out of time, 4 the solver failed, 1 anything else.
#[derive(Debug, Parser)]
#[command(name = "shoal-planner", version)]
struct Arguments {
    /// The longest that the solver may take for one linear program.
    #[arg(long, value_name = "SECONDS", default_value_t = 120, value_parser = clap::value_parser!(u64).range(1..=86_400))]
    time_limit: u64,
    /// Processors that the solver may use.
    #[arg(long, value_name = "COUNT", default_value_t = NonZeroU32::MIN)]
    threads: NonZeroU32,
}

/// A failure: its text, and its exit code.
struct Failure(u8, String);

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    match run(&arguments) {
        Ok(()) => ExitCode::SUCCESS,
        Err(Failure(code, text)) => {
            // Nothing can be done about a stderr that is closed.
            let _ = writeln!(std::io::stderr(), "error: {text}");
            ExitCode::from(code)
        }
    }
}

fn run(arguments: &Arguments) -> Result<(), Failure> {
    let misused = |text: String| Failure(2, text);
    let mut text = String::new();
    let read = std::io::stdin()
        .lock()
        .take(REQUEST_BYTES_MAX + 1)
        .read_to_string(&mut text);
    read.map_err(|error| misused(format!("stdin: {error}\nhint: give the request as JSON in UTF-8")))?;
    if text.len() as u64 > REQUEST_BYTES_MAX {
        let what = "the request is larger than 1 GiB\nhint: plan a shorter window";
        return Err(misused(what.to_owned()));
    }
    let request: Request = serde_json::from_str(&text).map_err(|error| {
        misused(format!(
            "the request is not one: {error}\nhint: see docs/reference/plan.md for its form"
        ))
    })?;
    let solver = HighsSolver {
        time_limit: Duration::from_secs(arguments.time_limit),
        threads: arguments.threads,
        is_patient: false,
    };
    let plan = shoal_plan::plan(&request, &solver).map_err(|error| {
        let code = match &error {
            PlanError::Request(_) => 2,
            PlanError::Solve(SolveError::OutOfTime(_)) => 3,
            PlanError::Solve(_) => 4,
        };
        Failure(code, error.to_string())
    })?;
    let mut out = std::io::BufWriter::new(std::io::stdout().lock());
    let written = serde_json::to_writer(&mut out, &plan)
        .map_err(std::io::Error::from)
        .and_then(|()| out.flush());
    written.map_err(|error| Failure(1, format!("stdout: {error}\nhint: read the plan until its end")))
}
