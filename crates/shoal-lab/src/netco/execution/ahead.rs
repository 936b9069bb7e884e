//! The fetches of the baseline that fetches inputs a fixed time ahead.

use std::collections::HashMap;

use shoal_plan::model::Request;

use super::planned::PlannedFetch;

/// The fetches of the fixed-time baseline: each input of each job, at a constant rate, so that it is there in
/// time.
pub(super) fn ahead(
    request: &Request,
    forecast: &Request,
    ahead_s: f64,
    files: &HashMap<&str, usize>,
    ad_hoc: &[bool],
) -> Vec<PlannedFetch> {
    let mut fetches = Vec::new();
    for (number, job) in forecast.jobs.iter().enumerate() {
        if ad_hoc.get(number) == Some(&true) {
            continue;
        }
        for name in &job.inputs {
            let Some(&file) = files.get(name.as_str()) else {
                continue;
            };
            let described = &request.files[file];
            let start_s = (job.submit_s - ahead_s)
                .max(described.available_s.unwrap_or(f64::NEG_INFINITY))
                .max(request.window.start_s);
            if start_s < job.submit_s {
                let bytes = described.bytes as f64;
                fetches.push(PlannedFetch {
                    file,
                    start_s,
                    bytes,
                    bytes_per_second: bytes / (job.submit_s - start_s),
                });
            }
        }
    }
    fetches.sort_by(|a, b| a.start_s.total_cmp(&b.start_s));
    fetches
}
