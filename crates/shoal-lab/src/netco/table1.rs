//! Table 1 of the paper: six jobs that read three files, used to test every part of `shoal-plan`.

use shoal_plan::model::{Cache, File, Job, Link, Options, Request, VERSION, Window};

/// The bytes of the paper's unit.
pub const UNIT_BYTES: u64 = 1 << 30;

/// Table 1: all files have one unit, the cache two, the link gives one a second and the cache three.
pub fn request() -> Request {
    let file = |number: u32| File {
        name: format!("f{number}"),
        bytes: UNIT_BYTES,
        available_s: None,
        block_bytes: File::default_block_bytes(),
    };
    let job = |number: u32, submit_s: f64, deadline_s: f64, inputs: &[u32], units_per_second: f64| Job {
        name: format!("J{number}"),
        submit_s,
        deadline_s,
        inputs: inputs.iter().map(|number| format!("f{number}")).collect(),
        bytes_per_second_max: Some(units_per_second * UNIT_BYTES as f64),
    };
    Request {
        version: VERSION,
        window: Window {
            start_s: 0.0,
            end_s: 6.0,
            slot_s: 0.5,
        },
        link: Link {
            bytes_per_second: UNIT_BYTES as f64,
            changes: Vec::new(),
            promised: Vec::new(),
        },
        cache: Cache {
            capacity_bytes: 2 * UNIT_BYTES,
            bytes_per_second: Some(3.0 * UNIT_BYTES as f64),
            held: Vec::new(),
        },
        files: (1..=3).map(file).collect(),
        jobs: vec![
            job(1, 1.0, 2.0, &[1], 2.0),
            job(2, 1.5, 3.0, &[2], 1.0),
            job(3, 4.0, 6.0, &[2, 3], 1.0),
            job(4, 4.0, 6.0, &[2], 1.0),
            job(5, 4.5, 5.0, &[3], 2.0),
            job(6, 5.0, 6.0, &[1], 1.0),
        ],
        options: Options::default(),
    }
}
