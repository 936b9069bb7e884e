//! A table of results, as Markdown and as CSV.

use std::fmt::Write as _;
use std::path::Path;

/// A table.
#[derive(Debug, Default)]
pub struct Table {
    head: Vec<String>,
    rows: Vec<Vec<String>>,
}

impl Table {
    /// An empty table with these columns.
    pub fn new(head: &[&str]) -> Self {
        Self {
            head: head.iter().map(|&name| name.to_owned()).collect(),
            rows: Vec::new(),
        }
    }

    /// Adds a row, and prints it.
    pub fn row(&mut self, cells: &[String]) {
        println!("{}", cells.join("  "));
        self.rows.push(cells.to_vec());
    }

    /// Writes `NAME.md` and `NAME.csv`.
    pub fn write(&self, out: &Path, name: &str) {
        let mut page = String::new();
        let line = |cells: &[String]| format!("| {} |", cells.join(" | "));
        let _ = writeln!(page, "{}\n|{}", line(&self.head), "---|".repeat(self.head.len()));
        self.rows.iter().for_each(|cells| {
            let _ = writeln!(page, "{}", line(cells));
        });
        let mut values = String::new();
        for cells in [&self.head].into_iter().chain(&self.rows) {
            let _ = writeln!(values, "{}", cells.join(","));
        }
        std::fs::write(out.join(format!("{name}.md")), page).expect("the folder for results can be written");
        std::fs::write(out.join(format!("{name}.csv")), values)
            .expect("the folder for results can be written");
    }
}

/// The median.
pub fn median(values: &[f64]) -> f64 {
    let mut values = values.to_vec();
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

/// The median, the least and the greatest value.
pub fn range(values: &[f64], digits: usize) -> String {
    let least = values.iter().copied().fold(f64::INFINITY, f64::min);
    let greatest = values.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    format!(
        "{:.digits$} ({least:.digits$} to {greatest:.digits$})",
        median(values)
    )
}
