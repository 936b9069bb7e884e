//! The experiments of Netco's evaluation (section 6), simulated: `netco NAME OUT [--quick]` writes
//! `results.md`, and plots, into the folder OUT.

mod ad_hoc;
mod high;
mod medium;
mod misestimates;
mod rounding;
mod scale;
mod setup;
mod small_files;
mod table;

use std::num::NonZeroU32;
use std::path::Path;
use std::time::Duration;

use shoal_planner::HighsSolver;

const SOLVER: HighsSolver = HighsSolver {
    time_limit: Duration::from_mins(10),
    threads: NonZeroU32::MIN,
    is_patient: false,
};

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let is_quick = arguments.iter().any(|argument| argument == "--quick");
    let [name, out, ..] = arguments.as_slice() else {
        eprintln!("usage: netco NAME OUT [--quick]");
        std::process::exit(2);
    };
    let out = Path::new(out);
    std::fs::create_dir_all(out).expect("the folder for results can be made");
    match name.as_str() {
        "ad-hoc" => ad_hoc::run(out, is_quick),
        "high" => high::run(out, is_quick),
        "misestimates" => misestimates::run(out, is_quick),
        "rounding" => rounding::run(out, is_quick),
        "medium" => medium::run(out, is_quick),
        "scale" => scale::run(out, is_quick),
        "small-files" => small_files::run(out, is_quick),
        _ => {
            eprintln!("{name} is no experiment");
            std::process::exit(2);
        }
    }
}
