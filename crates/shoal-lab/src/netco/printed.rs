//! The linear programs of 4.2 with the paper's variables: `r` for every job and file, `C` and `X` for every
//! file and slot. They are too large for more than a few hundred jobs; the programs of
//! [`shoal_plan::lp::formulation`] are compared with them. The corrections that it names are made here, too.

use shoal_plan::instance::Instance;
use shoal_plan::lp::{ColumnId, LinearProgram};
use shoal_plan::model::Objective;

/// The program of an instance, in bytes and bytes a second, and the column of `B`, if it is a variable. The
/// least peak is a share of the link; no price is put on bytes.
#[expect(
    clippy::too_many_lines,
    reason = "it reads like the listing of 4.2, constraint by constraint"
)]
pub fn program(instance: &Instance, objective: Objective) -> LinearProgram {
    let mut program = LinearProgram::default();
    let slots = instance.slots.len();
    let seconds = instance.slots.seconds();
    // The unit of bytes, so that coefficients are near 1.
    let unit = instance
        .slots
        .link
        .iter()
        .copied()
        .fold(f64::MIN_POSITIVE, f64::max)
        * seconds;
    let fractions: Option<Vec<ColumnId>> = (objective == Objective::MostDeadlines).then(|| {
        instance
            .jobs
            .iter()
            .map(|_| program.column(-1.0, 0.0..=1.0))
            .collect()
    });
    let peak = fractions
        .is_none()
        .then(|| program.column(1.0, 0.0..=f64::INFINITY));
    let mut cached: Vec<Vec<ColumnId>> = Vec::new();
    let mut fetched: Vec<Vec<ColumnId>> = Vec::new();
    for file in &instance.files {
        let size = file.bytes / unit;
        let fetch = |slot| {
            if slot < file.available {
                0.0..=0.0
            } else {
                0.0..=size
            }
        };
        let keep = |slot| {
            if slot < file.held_until {
                file.held_bytes / unit
            } else {
                0.0
            }
        };
        cached.push(
            (0..slots)
                .map(|slot| program.column(0.0, keep(slot)..=size))
                .collect(),
        );
        fetched.push((0..slots).map(|slot| program.column(0.0, fetch(slot))).collect());
    }
    let mut rates: Vec<Vec<ColumnId>> = Vec::new();
    for (number, job) in instance.jobs.iter().enumerate() {
        let mut of_job = Vec::new();
        for &(file, _) in &job.reads {
            let size = instance.files[file].bytes / unit;
            let rate = program.column(0.0, 0.0..=f64::INFINITY);
            // (1)
            let mut terms = vec![
                (rate, job.seconds / seconds),
                (cached[file][job.from], 1.0),
                (fetched[file][job.from], -1.0),
            ];
            match &fractions {
                Some(fractions) => {
                    terms.push((fractions[number], -size));
                    program.row(0.0..=f64::INFINITY, terms);
                }
                None => program.row(size..=f64::INFINITY, terms),
            }
            // (3)
            for slot in job.from + 1..job.until {
                let terms = [(cached[file][slot], 1.0), (cached[file][slot - 1], -1.0)];
                program.row(0.0..=f64::INFINITY, terms);
            }
            of_job.push(rate);
        }
        rates.push(of_job);
    }
    // (2)
    for ((cached, fetched), file) in cached.iter().zip(&fetched).zip(&instance.files) {
        for slot in 0..slots {
            let before = slot.checked_sub(1).map(|before| (cached[before], -1.0));
            let held = if slot == 0 { file.held_bytes / unit } else { 0.0 };
            let terms = [(cached[slot], 1.0), (fetched[slot], -1.0)];
            program.row(f64::NEG_INFINITY..=held, terms.into_iter().chain(before));
        }
    }
    for slot in 0..slots {
        // (4)
        program.row(
            f64::NEG_INFINITY..=instance.capacity_bytes / unit,
            cached.iter().map(|cached| (cached[slot], 1.0)),
        );
        // (5)
        let running = instance
            .jobs
            .iter()
            .zip(&rates)
            .filter(|(job, _)| (job.from..job.until).contains(&slot));
        let mut terms: Vec<_> = running
            .flat_map(|(_, rates)| rates.iter().map(|&rate| (rate, 1.0)))
            .collect();
        terms.extend(fetched.iter().map(|fetched| (fetched[slot], 1.0)));
        let (link, promised) = (
            instance.slots.link[slot] * seconds / unit,
            instance.slots.promised[slot] * seconds / unit,
        );
        match peak {
            Some(peak) => {
                terms.push((peak, -link));
                program.row(f64::NEG_INFINITY..=-promised, terms);
            }
            None => program.row(f64::NEG_INFINITY..=(link - promised).max(0.0), terms),
        }
    }
    program
}
