//! Plots of a plan, as SVG: the fetches over time, the link, the cache.

use shoal_plot::{Line, Lines, Span, Spans, stacked};

use crate::plan::{FilePlan, Plan};

/// Maximum rows of a Gantt chart; more would not be legible.
const MOST_ROWS: usize = 60;

/// Draws all plots of a plan in one picture.
pub fn picture(plan: &Plan) -> String {
    stacked(&[transfers(plan), link(plan), cache(plan)])
}

/// Fetches and cached intervals of the files with the most fetched bytes.
fn transfers(plan: &Plan) -> String {
    let start_s = plan.usage.start_s;
    let size = |file: &FilePlan| {
        file.transfers
            .iter()
            .map(|one| (one.end_s - one.start_s) * one.bytes_per_second)
            .sum::<f64>()
    };
    let mut files: Vec<_> = plan.files.iter().map(|file| (file, size(file))).collect();
    files.sort_by(|a, b| b.1.total_cmp(&a.1).then(a.0.file.cmp(&b.0.file)));
    files.truncate(MOST_ROWS);
    let begin = |file: &FilePlan| {
        let transfers = file.transfers.iter().map(|one| one.start_s);
        transfers
            .chain(file.cached.iter().map(|one| one.from_s))
            .fold(f64::INFINITY, f64::min)
    };
    files.sort_by(|a, b| begin(a.0).total_cmp(&begin(b.0)).then(a.0.file.cmp(&b.0.file)));
    let rows = files.iter().map(|(file, _)| {
        let most = file.cached.iter().map(|one| one.bytes).fold(0.0, f64::max);
        let cached = file.cached.iter().map(|one| Span {
            from: (one.from_s - start_s).max(0.0),
            until: one.until_s - start_s,
            kind: 1,
            height: 0.9 * one.bytes / most,
        });
        let fetched = file.transfers.iter().map(|one| Span {
            from: (one.start_s - start_s).max(0.0),
            until: one.end_s - start_s,
            kind: 0,
            height: 0.4,
        });
        (file.file.clone(), cached.chain(fetched).collect())
    });
    let shown = if plan.files.len() > MOST_ROWS {
        " with the most fetched bytes"
    } else {
        ""
    };
    Spans {
        title: format!("Transfers and cached files{shown}"),
        x_label: "seconds since the start of the plan".to_owned(),
        y_label: "file".to_owned(),
        rows: rows.collect(),
        kinds: vec!["fetched".to_owned(), "cached".to_owned()],
    }
    .svg()
}

/// Plots the skyline of the link: promised rates, with remote reads and with fetches on top.
fn link(plan: &Plan) -> String {
    let usage = &plan.usage;
    let (promised, remote, fetched) = (
        &usage.promised_bytes_per_second,
        &usage.remote_bytes_per_second,
        &usage.fetched_bytes_per_second,
    );
    let lines = [
        ("the link", stacked_series(&[&usage.link_bytes_per_second])),
        (
            "all that is planned",
            stacked_series(&[promised, remote, fetched]),
        ),
        ("without fetches", stacked_series(&[promised, remote])),
        ("promised to others", stacked_series(&[promised])),
    ];
    lines_of(plan, "The link", "GB/s", &lines)
}

/// Plots the cache: planned bytes, and pages on top.
fn cache(plan: &Plan) -> String {
    let usage = &plan.usage;
    let room = vec![usage.capacity_bytes; usage.cached_bytes.len()];
    let lines = [
        ("its room", stacked_series(&[&room])),
        (
            "all that is kept",
            stacked_series(&[&usage.cached_bytes, &usage.paged_bytes]),
        ),
        ("without pages", stacked_series(&[&usage.cached_bytes])),
    ];
    lines_of(plan, "The cache", "GB", &lines)
}

/// Sums up series of bytes, in GB.
fn stacked_series(parts: &[&[f64]]) -> Vec<f64> {
    let sum = |slot: usize| parts.iter().map(|part| part[slot]).sum::<f64>() / 1e9;
    (0..parts[0].len()).map(sum).collect()
}

/// Plots lines over the slots of a plan, as steps.
fn lines_of(plan: &Plan, title: &str, y_label: &str, lines: &[(&str, Vec<f64>)]) -> String {
    let slot_s = plan.usage.slot_s;
    let steps = |values: &[f64]| -> Vec<(f64, f64)> {
        let step = |(slot, &value): (usize, &f64)| {
            [(slot as f64 * slot_s, value), ((slot + 1) as f64 * slot_s, value)]
        };
        values.iter().enumerate().flat_map(step).collect()
    };
    let lines = lines.iter().map(|(name, values)| Line {
        name: (*name).to_owned(),
        points: steps(values),
    });
    Lines {
        title: title.to_owned(),
        x_label: "seconds since the start of the plan".to_owned(),
        y_label: y_label.to_owned(),
        lines: lines.collect(),
    }
    .svg()
}
