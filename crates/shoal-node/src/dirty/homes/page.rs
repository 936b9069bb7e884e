//! Much in one answer, as far as it fits: manifests and what is known not to exist any more, or uploads.

use std::sync::Arc;

use shoal_base::encoding::{Malformed, Reader};
use shoal_s3::object::ObjectName;

use crate::dirty::manifest::{Manifest, read_name, write_name};

/// A page ends with what passes this.
const BYTES_MAX: usize = 1 << 20;

/// Whether there is more, and how much there is.
const HEAD_BYTES: usize = 5;

/// A part of what a node has.
#[derive(Clone, Debug, Default)]
pub(in crate::dirty) struct Page {
    /// In the order of names.
    pub manifests: Vec<Arc<Manifest>>,
    /// Names that were removed or flushed, and up to which write.
    pub gone: Vec<(ObjectName, u64)>,
    /// Whether there is more behind the last manifest.
    pub more: bool,
}

impl Page {
    /// The first of these that fit, and what is gone when they are all.
    pub(in crate::dirty) fn write(manifests: &[Arc<Manifest>], gone: &[(ObjectName, u64)]) -> Vec<u8> {
        let (mut out, more) = write_first(manifests, |manifest, out| manifest.write(out));
        let gone = if more { &[] } else { gone };
        out.extend_from_slice(&(gone.len() as u32).to_le_bytes());
        for (name, sequence) in gone {
            write_name(&mut out, name);
            out.extend_from_slice(&sequence.to_le_bytes());
        }
        out
    }

    /// Inverse of [`Page::write`].
    pub(in crate::dirty) fn read(bytes: &[u8]) -> Result<Self, Malformed> {
        let mut reader = Reader::new(bytes);
        let (manifests, more) = read_first(&mut reader, |reader| Manifest::read(reader).map(Arc::new))?;
        let mut page = Self {
            manifests,
            gone: Vec::new(),
            more,
        };
        for _ in 0..reader.u32()? {
            page.gone.push((read_name(&mut reader)?, reader.u64()?));
        }
        reader.rest().is_empty().then_some(page).ok_or(Malformed)
    }
}

/// As many of these as fit, at least one; whether there are more.
pub(in crate::dirty) fn write_first<T>(all: &[T], write: impl Fn(&T, &mut Vec<u8>)) -> (Vec<u8>, bool) {
    let (mut out, mut count) = (vec![0; HEAD_BYTES], 0);
    for one in all {
        if out.len() > BYTES_MAX {
            break;
        }
        write(one, &mut out);
        count += 1;
    }
    let more = count < all.len();
    out[0] = u8::from(more);
    out[1..HEAD_BYTES].copy_from_slice(&(count as u32).to_le_bytes());
    (out, more)
}

/// Inverse of [`write_first`].
pub(in crate::dirty) fn read_first<T>(
    reader: &mut Reader<'_>,
    read: impl Fn(&mut Reader<'_>) -> Result<T, Malformed>,
) -> Result<(Vec<T>, bool), Malformed> {
    let [more] = reader.array()?;
    let (count, more) = (reader.u32()?, more != 0);
    let first = (0..count).map(|_| read(reader)).collect::<Result<Vec<_>, _>>()?;
    // A page with more to come and nothing in it would be asked for again for ever.
    let ends = !more || !first.is_empty();
    ends.then_some((first, more)).ok_or(Malformed)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::{BYTES_MAX, Page};
    use crate::dirty::manifest::tests::manifest;

    #[test]
    fn a_page_holds_what_fits_and_the_last_one_what_is_gone() {
        let mut big = manifest("k", 1);
        big.headers
            .insert("x-amz-meta-long", "x".repeat(BYTES_MAX / 2).parse().unwrap());
        let big = Arc::new(big);
        let manifests: Vec<_> = (0..4).map(|_| Arc::clone(&big)).collect();
        let gone = [(manifest("gone", 1).name, 9)];
        let page = Page::read(&Page::write(&manifests, &gone)).unwrap();
        assert!(page.more && page.manifests.len() == 2 && page.gone.is_empty());
        let page = Page::read(&Page::write(&manifests[2..], &gone)).unwrap();
        assert!(!page.more && page.manifests.len() == 2);
        assert_eq!(page.gone, gone);
    }

    #[test]
    fn a_page_that_is_cut_or_never_ends_is_refused() {
        let whole = Page::write(&[Arc::new(manifest("k", 1))], &[]);
        for end in 0..whole.len() {
            assert!(Page::read(&whole[..end]).is_err(), "cut at {end}");
        }
        let endless = [&[1][..], &[0; 8]].concat();
        assert!(Page::read(&endless).is_err());
    }
}
