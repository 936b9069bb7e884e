//! Numbers of readers, and which job reads which file.

use shoal_base::seeded::Chance;

use super::Sharing;

/// The share of the files that more than ten jobs read (Fig. 2a).
const SHARED: f64 = 0.25;
/// The exponent of the numbers of readers above ten: the mean of these files is near 20.
const TAIL: f64 = 2.2;

/// Draws from a log-normal distribution with this median.
pub(super) fn lognormal(chance: &mut Chance, median: f64, spread: f64) -> f64 {
    // Box and Muller.
    let radius = (-2.0 * (1.0 - chance.unit()).ln()).sqrt();
    median * (spread * radius * (std::f64::consts::TAU * chance.unit()).cos()).exp()
}

/// The number of readers of each file; `reads` together.
pub(super) fn reads_of_files(
    chance: &mut Chance,
    sharing: Sharing,
    reads: usize,
    files: usize,
    jobs: usize,
) -> Vec<usize> {
    let mut readers = match sharing {
        Sharing::Week => {
            let mut readers = Vec::new();
            let mut sum = 0;
            while sum < reads {
                let drawn = if chance.happens(SHARED) {
                    many(chance)
                } else {
                    few(chance)
                };
                sum += drawn.min(jobs);
                readers.push(drawn.min(jobs));
            }
            readers
        }
        Sharing::Table => {
            // One reader each; the other reads go to files by a law as uneven as the week's.
            let mut readers = vec![1; files.min(reads)];
            let weights: Vec<f64> = readers
                .iter()
                .map(|_| (1.0 - chance.unit()).powf(-1.0 / TAIL) - 1.0)
                .collect();
            let sum: f64 = weights.iter().sum();
            let more = (reads - readers.len()) as f64;
            for (count, weight) in readers.iter_mut().zip(&weights) {
                let share = weight / sum * more;
                #[expect(clippy::cast_sign_loss, reason = "a weight is positive")]
                let whole = share as usize;
                *count += whole + usize::from(chance.happens(share.fract()));
                *count = (*count).min(jobs);
            }
            readers
        }
    };
    chance.shuffle(&mut readers);
    readers
}

/// One to ten readers, `n` of them with a probability proportional to `1 / n`.
fn few(chance: &mut Chance) -> usize {
    let all: f64 = (1..=10).map(|n| 1.0 / f64::from(n)).sum();
    let mut left = chance.unit() * all;
    for n in 1..10 {
        left -= 1.0 / n as f64;
        if left < 0.0 {
            return n;
        }
    }
    10
}

/// More than ten, by Pareto's law.
#[expect(clippy::cast_sign_loss, reason = "a power is positive")]
fn many(chance: &mut Chance) -> usize {
    (11.0 * (1.0 - chance.unit()).powf(-1.0 / TAIL)) as usize
}

/// Which files each job reads. Jobs are in the order of time, and the readers of a file lie near each other
/// with half of the files (contemporaneous jobs, 6.2), and anywhere in the day with the others (recurring
/// jobs).
pub(super) fn inputs(chance: &mut Chance, jobs: usize, readers: &[usize]) -> Vec<Vec<usize>> {
    let mut inputs: Vec<Vec<usize>> = vec![Vec::new(); jobs];
    for (file, &count) in readers.iter().enumerate() {
        let near = chance.happens(0.5);
        let span = if near { (count * 8).clamp(1, jobs) } else { jobs };
        let from = chance.below((jobs - span + 1) as u64) as usize;
        let mut left = count;
        let mut tries = 0;
        while left > 0 && tries < 20 * count {
            tries += 1;
            let job = from + chance.below(span as u64) as usize;
            if !inputs[job].contains(&file) {
                inputs[job].push(file);
                left -= 1;
            }
        }
    }
    // A job that chance left without an input reads the file of its neighbour.
    for job in 0..jobs {
        if inputs[job].is_empty() {
            let file = inputs
                .iter()
                .skip(job)
                .chain(inputs.iter())
                .flatten()
                .next()
                .copied();
            inputs[job].push(file.unwrap_or(0));
        }
    }
    inputs
}
