//! Prints the runs of histories as JSON lines, which is itself a format of histories.
//!
//! `cargo run --release -p shoal-history --example runs -- FILE...`

use std::fs::File;

use serde_json::json;
use shoal_history::read::Reader;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut reader = Reader::default();
    for name in std::env::args().skip(1) {
        reader.file(&name, None, File::open(&name)?)?;
    }
    for run in reader.finish()?.runs() {
        let inputs: Vec<_> = run
            .inputs
            .iter()
            .map(|input| json!({"path": input.path, "bytes": input.bytes, "bytes_per_s": input.bytes_per_s}))
            .collect();
        let line = json!({
            "name": run.name, "submitted": run.submitted, "started": run.started, "ended": run.ended,
            "deadline": run.deadline, "inputs": inputs, "outputs": run.outputs
        });
        println!("{line}");
    }
    Ok(())
}
