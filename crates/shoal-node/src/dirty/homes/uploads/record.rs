//! What the disk keeps of uploads.

use shoal_base::encoding::{Malformed, Reader};
use shoal_policy::VersionId;
use shoal_s3::object::Version;

use crate::dirty::multipart::{Part, Upload, UploadId};

/// Where records of uploads begin: no manifest does, for no bucket's name is so long.
const MARK: [u8; 4] = [0xff; 4];
const UPLOAD: u8 = 0;
const PART: u8 = 1;

/// What a record says.
pub(super) enum Record {
    Upload(Upload),
    Part(UploadId, Part),
}

/// Names the record of an upload, as if it were a version of its object.
pub(super) fn name_of(upload: &Upload, lake: &str) -> VersionId {
    Version::id_of(upload.name.id(lake), &upload.id.to_string(), 0)
}

impl Record {
    /// Whether bytes that are no manifest are one of these.
    pub(super) fn is_one(bytes: &[u8]) -> bool {
        bytes.starts_with(&MARK)
    }

    pub(super) fn of_upload(upload: &Upload) -> Vec<u8> {
        let mut out = begin(UPLOAD);
        upload.write(&mut out);
        out
    }

    pub(super) fn of_part(id: UploadId, part: &Part) -> Vec<u8> {
        let mut out = begin(PART);
        id.write(&mut out);
        part.write(&mut out);
        out
    }

    /// Inverse of [`Record::of_upload`] and [`Record::of_part`].
    pub(super) fn of_bytes(bytes: &[u8]) -> Result<Self, Malformed> {
        let rest = bytes.strip_prefix(&MARK).ok_or(Malformed)?;
        let mut reader = Reader::new(rest);
        let record = match reader.array()? {
            [UPLOAD] => Self::Upload(Upload::read(&mut reader)?),
            [PART] => Self::Part(UploadId::read(&mut reader)?, Part::read(&mut reader)?),
            _ => return Err(Malformed),
        };
        reader.rest().is_empty().then_some(record).ok_or(Malformed)
    }
}

fn begin(kind: u8) -> Vec<u8> {
    let mut out = Vec::with_capacity(512);
    out.extend_from_slice(&MARK);
    out.push(kind);
    out
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::{any, proptest};

    use super::Record;
    use crate::dirty::manifest::tests::manifest;
    use crate::dirty::multipart::tests::{part, upload};

    #[test]
    fn what_is_written_down_is_read_back_and_is_no_manifest() {
        let (upload, part) = (upload(), part(7, 'a', 250));
        let bytes = Record::of_upload(&upload);
        assert!(
            matches!(Record::of_bytes(&bytes), Ok(Record::Upload(read)) if format!("{read:?}") == format!("{upload:?}"))
        );
        let bytes = Record::of_part(upload.id, &part);
        assert!(
            matches!(Record::of_bytes(&bytes), Ok(Record::Part(id, read)) if id == upload.id && format!("{read:?}") == format!("{part:?}"))
        );
        assert!(Record::is_one(&bytes) && !Record::is_one(&manifest("k", 1).to_bytes()));
    }

    proptest! {
        #[test]
        fn any_bytes_are_a_record_or_refused(bytes in vec(any::<u8>(), 0..300), kind in 0..3_u8) {
            let _ = Record::of_bytes(&[&super::MARK[..], &[kind], &bytes].concat());
        }
    }
}
