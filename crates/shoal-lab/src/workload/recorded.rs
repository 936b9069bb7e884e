//! Jobs of a recording, as an experiment runs them.

use shoal_sim::trace::{Access, Job, Operation, Piece};

/// Turns a request into a job that does nothing else. A deletion writes nothing of the object.
pub fn job_of(access: Access) -> Job {
    let piece = Piece::from(&access);
    let (reads, writes) = match access.operation {
        Operation::Read => (vec![piece], Vec::new()),
        Operation::Write => (Vec::new(), vec![piece]),
        Operation::Delete => (Vec::new(), vec![Piece { bytes: 0, ..piece }]),
    };
    Job {
        at: access.at,
        client: Some(access.client),
        reads,
        writes,
        ..Job::default()
    }
}

/// Scales objects, reads and writes by `factor`, rounded up: for traces of clusters larger than the simulated
/// one.
pub(super) fn scaled(mut job: Job, factor: f64) -> Job {
    #[expect(clippy::cast_sign_loss, reason = "a factor is positive")]
    let scaled = |bytes: u64| (bytes as f64 * factor).ceil() as u64;
    for piece in job.reads.iter_mut().chain(&mut job.writes) {
        *piece = Piece {
            object: piece.object,
            object_bytes: scaled(piece.object_bytes),
            offset_bytes: scaled(piece.offset_bytes),
            bytes: scaled(piece.bytes),
        };
    }
    job
}

#[cfg(test)]
mod tests {
    use shoal_sim::trace::{Job, Piece};

    use super::scaled;

    #[test]
    fn a_scaled_job_reads_and_writes_less_of_less() {
        let part = Piece {
            object: 1,
            object_bytes: 1000,
            offset_bytes: 500,
            bytes: 101,
        };
        let job = Job {
            reads: vec![part],
            writes: vec![Piece::whole(2, 10)],
            ..Job::default()
        };
        let scaled = scaled(job, 0.1);
        assert_eq!(
            (scaled.reads[0].object_bytes, scaled.reads[0].offset_bytes),
            (100, 50)
        );
        assert_eq!((scaled.reads[0].bytes, scaled.writes[0].bytes), (11, 1));
    }
}
