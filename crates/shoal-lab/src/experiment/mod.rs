//! An experiment: a cluster, a workload, a grid of variations, several seeds. Reads `EXPERIMENT.toml`, writes
//! tables and plots.

mod grid;
mod merged;
mod results;
mod settings;

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc;

use shoal_base::spelling::suggestion;
use shoal_sim::trace::TraceError;
use toml::Table;

pub use self::grid::Label;
pub use self::merged::Merged;
pub use self::results::{Outcome, Results};
pub use self::settings::{ChangeSettings, MeasureSettings, MoveSettings, Settings};
use crate::report::Report;
use crate::simulation::run;

/// A grid of runs that has been read and checked.
#[derive(Clone, Debug)]
pub struct Experiment {
    title: String,
    /// The folder in which its relative paths start.
    folder: PathBuf,
    cells: Vec<Cell>,
}

/// The part of an experiment that is run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Length {
    Full,
    /// The part that `[quick]` selects.
    Quick,
}

/// One variation with one seed.
#[derive(Clone, Debug)]
struct Cell {
    labels: Vec<Label>,
    seed: u64,
    settings: Settings,
}

/// The reason why an experiment cannot be run.
#[derive(Debug, thiserror::Error)]
pub enum ExperimentError {
    /// The file cannot be read.
    #[error("cannot read {}: {source}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// The reason.
        source: std::io::Error,
    },
    /// The file has content that the simulator does not accept.
    #[error("{}: {what}", path.display())]
    Refused {
        /// The file.
        path: PathBuf,
        /// The error and a hint.
        what: String,
    },
    /// The trace cannot be read.
    #[error(transparent)]
    Trace(#[from] TraceError),
}

impl Experiment {
    /// Reads the experiment at `path`. Checks every cell of the grid before any runs.
    ///
    /// # Errors
    ///
    /// Fails if the file cannot be read, or if a cell of the grid is not a valid experiment.
    pub fn open(path: &Path) -> Result<Self, ExperimentError> {
        Self::read(path, Length::Full)
    }

    /// The same with the settings of `[quick]`, which make it short: fewer seeds, larger blocks.
    ///
    /// # Errors
    ///
    /// Fails as [`open`](Self::open) does.
    pub fn open_quick(path: &Path) -> Result<Self, ExperimentError> {
        Self::read(path, Length::Quick)
    }

    fn read(path: &Path, length: Length) -> Result<Self, ExperimentError> {
        let text = fs::read_to_string(path).map_err(|source| ExperimentError::Io {
            path: path.to_owned(),
            source,
        })?;
        let folder = path.parent().unwrap_or(Path::new("")).to_owned();
        Self::parse(&text, folder, length).map_err(|what| ExperimentError::Refused {
            path: path.to_owned(),
            what,
        })
    }

    fn parse(text: &str, folder: PathBuf, length: Length) -> Result<Self, String> {
        let mut table: Table = text.parse().map_err(|error: toml::de::Error| error.to_string())?;
        match table.remove("quick") {
            Some(toml::Value::Table(quick)) if length == Length::Quick => grid::merge(&mut table, quick),
            Some(toml::Value::Table(_)) | None => {}
            Some(_) => {
                return Err(
                    "`quick` is not a table\nhint: write [quick] and below it what is shorter".to_owned(),
                );
            }
        }
        let points = grid::points(table.remove("grid"))?;
        let mut cells = Vec::new();
        let mut title = String::new();
        for point in points {
            let mut varied = table.clone();
            grid::merge(&mut varied, point.patch);
            let settings: Settings = varied
                .try_into()
                .map_err(|error| refusal(&error, &point.labels))?;
            settings.check()?;
            title.clone_from(&settings.title);
            cells.extend(settings.seeds.iter().map(|&seed| Cell {
                labels: point.labels.clone(),
                seed,
                settings: settings.clone(),
            }));
        }
        Ok(Self { title, folder, cells })
    }

    /// The number of runs.
    pub const fn runs(&self) -> usize {
        self.cells.len()
    }

    /// Runs the whole experiment on `threads` threads, and passes the number of completed runs to `progress`
    /// on the caller's thread.
    ///
    /// # Errors
    ///
    /// Fails if a trace of the experiment cannot be read.
    pub fn run(&self, threads: usize, mut progress: impl FnMut(usize)) -> Result<Results, ExperimentError> {
        let next = AtomicUsize::new(0);
        let (done, finished) = mpsc::channel();
        let mut reports: Vec<Option<Report>> = vec![None; self.cells.len()];
        std::thread::scope(|scope| {
            for _ in 0..threads.clamp(1, self.cells.len().max(1)) {
                let (done, next) = (done.clone(), &next);
                scope.spawn(move || {
                    // The result of a cell does not depend on the thread that runs it.
                    while let Some((number, cell)) = take(next, &self.cells) {
                        if done.send((number, self.run_cell(cell))).is_err() {
                            return;
                        }
                    }
                });
            }
            drop(done);
            for (count, (number, report)) in (1..).zip(&finished) {
                reports[number] = Some(report?);
                progress(count);
            }
            Ok::<_, TraceError>(())
        })?;
        let outcome = |(cell, report): (&Cell, Option<Report>)| Outcome {
            labels: cell.labels.clone(),
            seed: cell.seed,
            report: report.expect("every cell has run"),
        };
        Ok(Results {
            title: self.title.clone(),
            outcomes: self.cells.iter().zip(reports).map(outcome).collect(),
        })
    }

    fn run_cell(&self, Cell { seed, settings, .. }: &Cell) -> Result<Report, TraceError> {
        let setup = settings.setup();
        let workload = settings.workload.build(
            &self.folder,
            setup.granularity,
            settings.cluster.nodes,
            settings.clients.per_node,
            *seed,
        )?;
        Ok(run(&setup, &workload, &mut *settings.cluster.build(*seed)))
    }
}

fn take<'cells>(next: &AtomicUsize, cells: &'cells [Cell]) -> Option<(usize, &'cells Cell)> {
    let number = next.fetch_add(1, Ordering::Relaxed);
    cells.get(number).map(|cell| (number, cell))
}

/// Describes the error in a cell of the grid, and suggests the name that was probably meant.
fn refusal(error: &toml::de::Error, labels: &[Label]) -> String {
    let message = error.to_string();
    let message = message.trim_end();
    let place = match labels {
        [] => String::new(),
        labels => {
            let labels: Vec<_> = labels
                .iter()
                .map(|label| format!("{} = {}", label.axis, label.point))
                .collect();
            format!(" (where {})", labels.join(", "))
        }
    };
    // serde names an unknown field or variant first and then the known ones, each between backticks.
    let mut quoted = error.message().split('`').skip(1).step_by(2);
    let hint = match quoted.next() {
        Some(given) if error.message().starts_with("unknown ") => suggestion(given, quoted)
            .map(|meant| format!("\nhint: did you mean `{meant}`?"))
            .unwrap_or_default(),
        _ => String::new(),
    };
    format!("{message}{place}{hint}")
}

#[cfg(test)]
mod tests;
