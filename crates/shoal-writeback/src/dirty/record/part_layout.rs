//! The layout of the parts in which an object was uploaded. The lake must get the same parts, or the ETag
//! would differ from the acknowledged one.

use serde::{Deserialize, Serialize};
use shoal_base::encoding::Malformed;
use shoal_s3::range::ByteRange;

/// The parts of an object, in order. Empty if it was written in one piece.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "Vec<Run>")]
pub struct PartLayout(Vec<Run>);

/// A run of parts of equal size with consecutive numbers. Most uploads have two runs: all parts but the last,
/// and the last.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Run {
    first: u16,
    count: u16,
    size_bytes: u64,
}

/// A part and its range in the object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PlacedPart {
    /// The number that the client gave the part.
    pub number: u16,
    /// The range of the object that the part holds.
    pub range: ByteRange,
}

impl PartLayout {
    /// Builds a layout from the number and size in bytes of each part, in ascending order of numbers.
    pub fn from_parts(parts: impl IntoIterator<Item = (u16, u64)>) -> Self {
        let mut runs: Vec<Run> = Vec::new();
        for (number, size_bytes) in parts {
            let last = runs.last().map(|run| run.first + (run.count - 1));
            assert!(last < Some(number), "the parts of an object ascend");
            match runs.last_mut() {
                Some(run) if run.size_bytes == size_bytes && run.first + run.count == number => {
                    run.count += 1;
                }
                _ => runs.push(Run {
                    first: number,
                    count: 1,
                    size_bytes,
                }),
            }
        }
        Self(runs)
    }

    /// Returns true if the object was written in one piece.
    pub fn is_whole(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns the number of parts.
    pub fn count(&self) -> usize {
        self.0.iter().map(|run| usize::from(run.count)).sum()
    }

    /// Returns the total size of the parts, or `None` on overflow.
    fn size_bytes(&self) -> Option<u64> {
        self.0.iter().try_fold(0_u64, |sum, run| {
            let bytes = run.size_bytes.checked_mul(run.count.into())?;
            sum.checked_add(bytes)
        })
    }

    /// Returns true if the parts add up to an object of `size_bytes`.
    pub fn fits(&self, size_bytes: u64) -> bool {
        self.is_whole() || self.size_bytes() == Some(size_bytes)
    }

    /// Returns every part, in order.
    pub fn parts(&self) -> impl Iterator<Item = PlacedPart> {
        let numbered = self.0.iter().flat_map(|run| {
            let numbers = run.first..=run.first + (run.count - 1);
            numbers.map(move |number| (number, run.size_bytes))
        });
        numbered.scan(0, |start, (number, size_bytes)| {
            let range = ByteRange::new(*start, *start + size_bytes);
            *start = range.end;
            Some(PlacedPart { number, range })
        })
    }
}

/// Accepts runs that are not empty, with ascending numbers, that do not add up to too many bytes.
impl TryFrom<Vec<Run>> for PartLayout {
    type Error = Malformed;

    fn try_from(runs: Vec<Run>) -> Result<Self, Malformed> {
        let mut last = None;
        for run in &runs {
            let end = run
                .count
                .checked_sub(1)
                .and_then(|more| run.first.checked_add(more));
            if end.is_none() || last.is_some_and(|last| run.first <= last) {
                return Err(Malformed);
            }
            last = end;
        }
        let layout = Self(runs);
        layout.size_bytes().map(|_| layout).ok_or(Malformed)
    }
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::{any, prop_assert_eq, proptest};

    use super::PartLayout;
    use crate::dirty::record::format::{all_of, decoded, encoded};

    #[test]
    fn a_thousand_parts_of_one_size_and_a_short_last_one_take_few_bytes() {
        let structure = PartLayout::from_parts((1..=1000).map(|number| (number, 8 << 20)).chain([(1001, 5)]));
        let bytes = encoded(&structure);
        assert!(bytes.len() < 32, "{} bytes", bytes.len());
        assert_eq!(structure.count(), 1001);
        let last = structure.parts().last().unwrap();
        assert_eq!(
            (last.number, last.range.start, last.range.len()),
            (1001, 8000 << 20, 5)
        );
        assert!(structure.fits((8000 << 20) + 5) && !structure.fits(8000 << 20));
    }

    proptest! {
        #[test]
        fn parts_keep_their_numbers_and_sizes(gaps in vec((1..3_u16, 0..3_u64), 0..50)) {
            let mut number = 0;
            let parts: Vec<_> = gaps.iter().map(|(gap, size)| { number += gap; (number, *size) }).collect();
            let read: PartLayout = decoded(&encoded(&PartLayout::from_parts(parts.clone()))).unwrap();
            let back: Vec<_> = read.parts().map(|part| (part.number, part.range.len())).collect();
            prop_assert_eq!(back, parts);
        }

        #[test]
        fn any_bytes_are_a_structure_or_refused(bytes in vec(any::<u8>(), 0..60)) {
            if let Ok(structure) = all_of::<PartLayout>(&bytes) {
                prop_assert_eq!(structure.parts().take(100).count(), structure.count().min(100));
            }
        }
    }
}
