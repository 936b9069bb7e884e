//! Parts of one upload, named shortly: no request between nodes could hold ten thousand ETags.

use std::sync::Arc;

use sha2::{Digest, Sha256};
use shoal_base::encoding::{Malformed, Reader};

use crate::dirty::multipart::Part;

/// Parts of one upload, named shortly: no request between nodes could hold ten thousand ETags.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Selection {
    /// Numbers that follow each other: the first one, and how many.
    runs: Vec<(u16, u16)>,
    /// Tells whether they still are the same parts.
    digest: u64,
}

impl Selection {
    /// Names these parts, whose numbers grow.
    pub(super) fn of(parts: &[Arc<Part>]) -> Self {
        let mut runs: Vec<(u16, u16)> = Vec::new();
        for part in parts {
            match runs.last_mut() {
                Some((first, count)) if *first + *count == part.number => *count += 1,
                _ => runs.push((part.number, 1)),
            }
        }
        Self {
            runs,
            digest: digest(parts),
        }
    }

    /// The parts that are named, among those that were uploaded; `None`: they are not the same any more.
    pub(super) fn among<'a>(
        &self,
        uploaded: impl Fn(u16) -> Option<&'a Arc<Part>>,
    ) -> Option<Vec<Arc<Part>>> {
        let numbers = self
            .runs
            .iter()
            .flat_map(|(first, count)| *first..=first + (count - 1));
        let parts: Vec<_> = numbers
            .map(|number| uploaded(number).cloned())
            .collect::<Option<_>>()?;
        (digest(&parts) == self.digest).then_some(parts)
    }

    pub(super) fn write(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&(self.runs.len() as u32).to_le_bytes());
        for (first, count) in &self.runs {
            out.extend_from_slice(&first.to_le_bytes());
            out.extend_from_slice(&count.to_le_bytes());
        }
        out.extend_from_slice(&self.digest.to_le_bytes());
    }

    /// Inverse of [`Selection::write`]: no run is empty, or goes beyond the last number.
    pub(super) fn read(reader: &mut Reader<'_>) -> Result<Self, Malformed> {
        let mut runs = Vec::new();
        for _ in 0..reader.u32()? {
            let (first, count) = (
                u16::from_le_bytes(reader.array()?),
                u16::from_le_bytes(reader.array()?),
            );
            let end = count.checked_sub(1).and_then(|more| first.checked_add(more));
            end.ok_or(Malformed)?;
            runs.push((first, count));
        }
        Ok(Self {
            runs,
            digest: reader.u64()?,
        })
    }
}

fn digest(parts: &[Arc<Part>]) -> u64 {
    let mut digest = Sha256::new();
    for part in parts {
        digest.update(part.number.to_le_bytes());
        digest.update(part.version.id.0);
    }
    let digest = digest.finalize();
    u64::from_le_bytes(*digest.first_chunk().expect("SHA-256 has 32 bytes"))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use shoal_base::encoding::Reader;

    use super::{Part, Selection};
    use crate::dirty::PART_BYTES_MIN;
    use crate::dirty::multipart::tests::{part, uploaded};

    #[test]
    fn a_selection_names_the_same_parts_until_one_is_replaced() {
        let parts = uploaded();
        let mut bytes = Vec::new();
        Selection::of(&parts).write(&mut bytes);
        let read = Selection::read(&mut Reader::new(&bytes)).unwrap();
        let among = |parts: &[Arc<Part>]| {
            let found = read.among(|number| parts.iter().find(|part| part.number == number));
            found.map(|parts| parts.len())
        };
        assert_eq!(among(&parts), Some(3));
        assert_eq!(among(&parts[1..]), None, "one is gone");
        let mut replaced = parts;
        replaced[1] = Arc::new(part(2, 'd', PART_BYTES_MIN));
        assert_eq!(among(&replaced), None);
    }
}
