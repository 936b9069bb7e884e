//! `shoal plan predict`: how predictable a history is, and what will run next.

use std::time::Duration;

use clap::Args;
use serde::Serialize;
use shoal_history::run::summary::Summary;
use shoal_history::{Forecast, Report, Templates, Window, backtest, forecast};

use super::history::{AFTER_HELP, HistoryFlags, span};
use crate::cli::failure::Failure;
use crate::cli::output::{pretty, print};

/// The longest window: jobs of every minute make 50,000 runs in it.
const WINDOW_MAX: Duration = Duration::from_hours(35 * 24);

const EXAMPLES: &str = "
Examples:
  shoal plan predict jobs.csv
  shoal plan predict /var/log/spark-events --window 6h
  shoal plan predict access.log --job-by header --gap 2m --json";

/// Say how predictable jobs are, and what will run next
///
/// The command forecasts the last day of the history from what came before, and says which share of runs,
/// bytes and inputs it foresaw, and why it did not foresee the rest. Then it forecasts the day after.
#[derive(Debug, Args)]
#[command(after_help = format!("{AFTER_HELP}\n{EXAMPLES}"))]
pub(super) struct Predict {
    #[command(flatten)]
    history: HistoryFlags,
    /// Length of the forecast: of the one that is tested, and of the one for the time after the history
    #[arg(long, value_name = "TIME", default_value = "1d", value_parser = window)]
    window: Duration,
    /// Print summary, report and forecast as JSON
    #[arg(long)]
    json: bool,
}

/// The whole output of the command.
#[derive(Serialize)]
struct Prediction {
    history: Summary,
    report: Option<Report>,
    forecast: Forecast,
}

impl Predict {
    pub(super) fn run(self) -> Result<(), Failure> {
        let history = self.history.read()?;
        let window_ms = i64::try_from(self.window.as_millis()).unwrap_or(i64::MAX);
        let summary = Summary::new(&history);
        let from = summary.to.unwrap_or_default().plus_ms(1);
        let prediction = Prediction {
            report: backtest(&history, window_ms),
            forecast: forecast(&Templates::learn(&history), Window::after(from, window_ms)),
            history: summary,
        };
        print(&if self.json {
            pretty(&prediction)
        } else {
            prediction.text()
        });
        Ok(())
    }
}

impl Prediction {
    fn text(&self) -> String {
        let report = self.report.as_ref().map(|report| format!("\n{}", report.text()));
        format!(
            "{}{}\n{}",
            self.history.text(),
            report.unwrap_or_default(),
            self.forecast.text()
        )
    }
}

/// Parses a window on the command line.
pub(super) fn window(text: &str) -> Result<Duration, String> {
    let window = span(text)?;
    if window > WINDOW_MAX {
        return Err(format!("hint: at most {} days", WINDOW_MAX.as_secs() / 86_400));
    }
    Ok(window)
}

#[cfg(test)]
mod tests {
    use std::fmt::Write as _;
    use std::fs;
    use std::process::ExitCode;

    use clap::{Args, Command, FromArgMatches};

    use super::Predict;

    fn predict(args: &[&str]) -> Result<Predict, clap::Error> {
        let command = Predict::augment_args(Command::new("predict"));
        let matches = command.try_get_matches_from(["predict"].iter().chain(args))?;
        Predict::from_arg_matches(&matches)
    }

    #[test]
    fn a_history_is_read_and_told() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("jobs.csv");
        let mut text = "name,submitted,ended,input,input_bytes\n".to_owned();
        for day in 1..=20 {
            let _ = writeln!(
                text,
                "etl,2026-11-{day:02}T02:00:00Z,2026-11-{day:02}T02:10:00Z,s3://lake/t/dt=2026-11-{day:02}/,1000000"
            );
        }
        fs::write(&path, text).unwrap();
        let path = path.to_str().unwrap();
        predict(&[path]).unwrap().run().unwrap();
        predict(&[path, "--json", "--window", "6h", "--format", "csv"])
            .unwrap()
            .run()
            .unwrap();
    }

    #[test]
    fn what_cannot_be_read_is_refused_with_a_hint() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("h");
        let told = |text: &str| {
            fs::write(&path, text).unwrap();
            let failure = predict(&[path.to_str().unwrap()]).unwrap().run().unwrap_err();
            assert_eq!(failure.exit_code(), ExitCode::from(2), "{text}: {failure:?}");
            let (what, hint) = failure.message();
            assert!(!hint.is_empty(), "{what}");
            what.to_owned()
        };
        assert!(told("hello\n").contains("cannot tell the format"));
        assert!(told("name,submitted\na,soon\n").contains("h:2: found `soon` in the column `submitted`"));
        assert!(told("{\"target\":\"shoal::cli\"}\n").contains("no run of a job"));
        let without_header = "{\"target\": \"shoal::access\", \"time\": \"2026-11-20T02:00:00Z\"}\n";
        fs::write(&path, without_header).unwrap();
        let unnamed = predict(&[path.to_str().unwrap(), "--job-by", "header"])
            .unwrap()
            .run();
        let unnamed = unnamed.unwrap_err();
        assert!(unnamed.message().0.contains("names its job"), "{unnamed:?}");
        let missing = predict(&["/nonexistent"]).unwrap().run().unwrap_err();
        assert_eq!(missing.exit_code(), ExitCode::from(1), "{missing:?}");
    }

    #[test]
    fn flags_that_make_no_sense_are_refused() {
        for args in [
            &["h", "--window", "60d"][..],
            &["h", "--window", "0s"],
            &["h", "--format", "sparc"],
            &["h", "--job-by", "luck"],
            &["h", "--gap", "soon"],
        ] {
            assert!(predict(args).is_err(), "{args:?}");
        }
        let failure = predict(&[]).unwrap().run().unwrap_err();
        assert_eq!(failure.exit_code(), ExitCode::from(2), "{failure:?}");
    }
}
