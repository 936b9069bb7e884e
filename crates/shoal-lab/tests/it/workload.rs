//! Workloads have the properties that the paper prints.

use std::collections::HashMap;

use shoal_lab::netco::workload::{Drawn, LEAD_S, Sharing, Unit, Workload};

/// The number of jobs that read each file.
fn readers(drawn: &Drawn) -> HashMap<&str, u32> {
    let mut readers = HashMap::new();
    for name in drawn.jobs.iter().flat_map(|job| &job.inputs) {
        *readers.entry(name.as_str()).or_default() += 1;
    }
    readers
}

fn bytes(drawn: &Drawn) -> HashMap<&str, f64> {
    drawn
        .files
        .iter()
        .map(|file| (file.name.as_str(), file.bytes as f64))
        .collect()
}

#[test]
fn a_day_has_the_jobs_files_and_bytes_of_table_2() {
    for unit in [Unit::B1, Unit::B2, Unit::B3, Unit::B4] {
        let (jobs, read_bytes, files) = unit.table();
        let drawn = Workload {
            unit,
            scale: 0.1,
            files_a_job: 6.0,
            ..Workload::default()
        }
        .draw();
        let about =
            |found: f64, printed: f64| assert!((found / printed - 1.0).abs() < 0.02, "{found} for {printed}");
        about(drawn.jobs.len() as f64, f64::from(jobs) / 10.0);
        about(drawn.files.len() as f64, f64::from(files) / 10.0);
        about(drawn.read_bytes(), read_bytes / 10.0);
        let reads: usize = drawn.jobs.iter().map(|job| job.inputs.len()).sum();
        about(reads as f64, 6.0 * drawn.jobs.len() as f64);
        assert!(drawn.request(1e9, 1, 60.0).check().is_ok());
        let recurring =
            drawn.recurring.iter().filter(|recurs| **recurs).count() as f64 / drawn.jobs.len() as f64;
        assert!((0.4..0.75).contains(&recurring), "{recurring}");
    }
}

#[test]
fn a_quarter_of_the_weeks_files_is_read_by_more_than_ten_jobs_and_gets_more_than_half_of_the_bytes() {
    let drawn = Workload {
        scale: 0.3,
        hours: 24.0,
        sharing: Sharing::Week,
        ..Workload::default()
    }
    .draw();
    let (readers, sizes) = (readers(&drawn), bytes(&drawn));
    let shared: Vec<&str> = readers
        .iter()
        .filter(|(_, count)| **count > 10)
        .map(|(name, _)| *name)
        .collect();
    let share = shared.len() as f64 / readers.len() as f64;
    assert!((0.22..0.28).contains(&share), "{share}");
    let read: f64 = shared
        .iter()
        .map(|name| sizes[name] * f64::from(readers[name]))
        .sum();
    assert!(read > 0.5 * drawn.read_bytes(), "{}", read / drawn.read_bytes());
}

#[test]
fn files_can_be_fetched_before_they_are_read_and_rates_do_not_depend_on_popularity() {
    let drawn = Workload {
        scale: 0.3,
        sharing: Sharing::Week,
        ..Workload::default()
    }
    .draw();
    let mut first_s: HashMap<&str, f64> = HashMap::new();
    for job in &drawn.jobs {
        for name in &job.inputs {
            let first = first_s.entry(name).or_insert(f64::INFINITY);
            *first = first.min(job.submit_s);
        }
    }
    // The paper's slackness: the file's age when it is first read, by the time that a fetch takes; many VMs
    // fetch a large file.
    let is_slack = |file: &&shoal_plan::model::File| {
        let fetch_s = file.bytes as f64 / ((file.bytes as f64 / 4e9).ceil() * 125e6);
        first_s[file.name.as_str()] - file.available_s.unwrap() > fetch_s
    };
    let slack = drawn.files.iter().filter(is_slack).count() as f64 / drawn.files.len() as f64;
    assert!((0.93..0.98).contains(&slack), "{slack}");
    let readers = readers(&drawn);
    let pairs: Vec<(f64, f64)> = drawn
        .jobs
        .iter()
        .flat_map(|job| {
            job.inputs.iter().map(|name| {
                (
                    f64::from(readers[name.as_str()]),
                    job.bytes_per_second_max.unwrap(),
                )
            })
        })
        .collect();
    let mean = |of: &dyn Fn(&(f64, f64)) -> f64| pairs.iter().map(of).sum::<f64>() / pairs.len() as f64;
    let (x, y) = (mean(&|pair| pair.0), mean(&|pair| pair.1));
    let covariance = mean(&|pair| (pair.0 - x) * (pair.1 - y));
    let spread = (mean(&|pair| (pair.0 - x).powi(2)) * mean(&|pair| (pair.1 - y).powi(2))).sqrt();
    assert!((covariance / spread).abs() < 0.15, "{}", covariance / spread);
}

#[test]
fn most_jobs_come_at_the_start_of_an_hour_and_a_seed_gives_the_same_workload() {
    let workload = Workload {
        scale: 0.1,
        ..Workload::default()
    };
    let drawn = workload.draw();
    let early = drawn
        .jobs
        .iter()
        .filter(|job| (job.submit_s - LEAD_S) % 3600.0 < 300.0)
        .count() as f64;
    assert!(early > 0.55 * drawn.jobs.len() as f64);
    assert_eq!(drawn, workload.draw());
    assert_ne!(drawn, Workload { seed: 2, ..workload }.draw());
}
