//! Which uploads are kept, asked of all nodes for a listing.

use std::sync::Arc;
use std::time::SystemTime;

use shoal_policy::NodeId;

use super::{Upload, UploadId, UploadRequest};
use crate::dirty::homes::directory::ask_all;
use crate::dirty::homes::page::{read_first, write_first};
use crate::dirty::homes::view::View;
use crate::dirty::{Answer, Dirty, Unknown};
use crate::encoding::{Malformed, Reader, write_bytes, write_time};

/// Which uploads somebody wants to hear of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Inquiry {
    /// Where their objects will be.
    pub bucket: Arc<str>,
    /// Beginning of the keys.
    pub prefix: Vec<u8>,
    /// Who began them.
    pub writer: Arc<str>,
    /// Those up to here are known already.
    pub behind: Option<Place>,
}

/// A place in the order in which uploads are listed: by their keys, and for one key by when they were begun.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    /// The key.
    pub key: Arc<[u8]>,
    /// Which upload of it; `None`: behind them all.
    upload: Option<(SystemTime, UploadId)>,
}

impl Place {
    /// Behind all uploads of a key.
    pub fn behind_all_of(key: &[u8]) -> Self {
        Self {
            key: key.into(),
            upload: None,
        }
    }

    /// Before all uploads of a key.
    pub fn before_all_of(key: &[u8]) -> Self {
        let first = UploadId::new(NodeId(0), [0, 0]);
        Self {
            key: key.into(),
            upload: Some((SystemTime::UNIX_EPOCH, first)),
        }
    }

    /// Where an upload stands.
    pub fn of(upload: &Upload) -> Self {
        Self {
            key: Arc::clone(&upload.name.key),
            upload: Some((upload.begun, upload.id)),
        }
    }

    /// Whether an upload stands behind it.
    pub fn is_before(&self, upload: &Upload) -> bool {
        let is_earlier = |at: &(SystemTime, UploadId)| *at < (upload.begun, upload.id);
        self.key < upload.name.key
            || (self.key == upload.name.key && self.upload.as_ref().is_some_and(is_earlier))
    }

    /// Writes it down, for another node or a marker.
    pub(in crate::dirty) fn write(place: Option<&Self>, out: &mut Vec<u8>) {
        let Some(Self { key, upload }) = place else {
            out.push(NOWHERE);
            return;
        };
        out.push(if upload.is_some() { UPLOAD } else { KEY });
        write_bytes(out, key);
        if let Some((begun, id)) = upload {
            write_time(out, Some(*begun));
            id.write(out);
        }
    }

    /// The pair of [`Place::write`].
    pub(in crate::dirty) fn read(reader: &mut Reader<'_>) -> Result<Option<Self>, Malformed> {
        let [kind] = reader.array()?;
        if kind == NOWHERE {
            return Ok(None);
        }
        let key = reader.bytes()?.into();
        let upload = match kind {
            KEY => None,
            UPLOAD => Some((reader.time()?.ok_or(Malformed)?, UploadId::read(reader)?)),
            _ => return Err(Malformed),
        };
        Ok(Some(Self { key, upload }))
    }
}

const NOWHERE: u8 = 0;
const KEY: u8 = 1;
const UPLOAD: u8 = 2;

impl Inquiry {
    /// Whether an upload is among those that are meant.
    pub(super) fn is_about(&self, upload: &Upload) -> bool {
        let is_known = |place: &Place| !place.is_before(upload);
        upload.writer == self.writer
            && upload.name.bucket == self.bucket
            && upload.name.key.starts_with(&self.prefix)
            && !self.behind.as_ref().is_some_and(is_known)
    }

    pub(super) fn write(&self, out: &mut Vec<u8>) {
        write_bytes(out, self.bucket.as_bytes());
        write_bytes(out, &self.prefix);
        write_bytes(out, self.writer.as_bytes());
        Place::write(self.behind.as_ref(), out);
    }

    /// The pair of [`Inquiry::write`].
    pub(super) fn read(reader: &mut Reader<'_>) -> Result<Self, Malformed> {
        Ok(Self {
            bucket: reader.text()?.into(),
            prefix: reader.bytes()?.into(),
            writer: reader.text()?.into(),
            behind: Place::read(reader)?,
        })
    }
}

impl Dirty {
    /// Every upload that is kept by a node of the cluster and is meant, in the order in which they are listed.
    pub async fn list_uploads(self: &Arc<Self>, inquiry: &Inquiry) -> Result<Vec<Arc<Upload>>, Unknown> {
        let ask =
            |view: Arc<View>, node| async move { self.list_uploads_at(&view, node, inquiry.clone()).await };
        let mut uploads = ask_all(&self.home.cooperation, ask).await?;
        sort(&mut uploads);
        Ok(uploads)
    }

    /// Those that one node keeps; `None` when it is not settled. Nobody else knows of them.
    async fn list_uploads_at(
        self: &Arc<Self>,
        view: &View,
        node: NodeId,
        mut inquiry: Inquiry,
    ) -> Result<Option<Vec<Arc<Upload>>>, Unknown> {
        let mut uploads = Vec::new();
        loop {
            let request = UploadRequest::List(view.digest, Box::new(inquiry.clone()));
            let Answer::Done(body) = self.ask_about_uploads(node, request).await? else {
                return Ok(None);
            };
            let (listed, more) = read_page(&body).map_err(|_| Unknown)?;
            inquiry.behind = listed.last().map(|last| Place::of(last));
            uploads.extend(listed);
            if !more {
                return Ok(Some(uploads));
            }
        }
    }

    /// Tells of the uploads that this node keeps somebody who sees the same cluster.
    pub(super) fn tell_uploads(&self, view: u64, inquiry: &Inquiry) -> Answer {
        if self.home.is_settled_in(view).is_none() {
            return Answer::Unsettled;
        }
        let mut uploads = self.uploads.table.lock().meant_by(inquiry);
        sort(&mut uploads);
        Answer::Done(write_page(&uploads).into())
    }
}

fn sort(uploads: &mut [Arc<Upload>]) {
    uploads.sort_unstable_by(|one, other| {
        let place = |upload: &Upload| (Arc::clone(&upload.name.key), upload.begun, upload.id);
        place(one).cmp(&place(other))
    });
}

fn write_page(uploads: &[Arc<Upload>]) -> Vec<u8> {
    write_first(uploads, |upload, out| upload.write(out)).0
}

/// The pair of [`write_page`].
fn read_page(bytes: &[u8]) -> Result<(Vec<Arc<Upload>>, bool), Malformed> {
    let mut reader = Reader::new(bytes);
    let page = read_first(&mut reader, |reader| Upload::read(reader).map(Arc::new))?;
    reader.rest().is_empty().then_some(page).ok_or(Malformed)
}

#[cfg(test)]
pub(in crate::dirty) mod tests {
    use std::sync::Arc;
    use std::time::{Duration, SystemTime};

    use shoal_policy::NodeId;

    use super::super::part::tests::upload;
    use super::{Inquiry, Place, Upload, UploadId, read_page, sort, write_page};

    /// An upload begun so many seconds after 1970 by whom [`inquiry`] asks for.
    pub(in crate::dirty) fn begun(key: &str, seconds: u64, chance: u64) -> Arc<Upload> {
        let mut upload = upload();
        upload.name.key = key.as_bytes().into();
        upload.begun = SystemTime::UNIX_EPOCH + Duration::from_secs(seconds);
        upload.id = UploadId::new(NodeId(1), [0, chance]);
        Arc::new(upload)
    }

    pub(in crate::dirty::homes::uploads) fn inquiry(prefix: &str) -> Inquiry {
        let Upload { name, writer, .. } = upload();
        Inquiry {
            bucket: name.bucket,
            prefix: prefix.into(),
            writer,
            behind: None,
        }
    }

    #[test]
    fn uploads_stand_by_their_keys_and_then_by_when_they_were_begun() {
        let uploads = [
            begun("a", 2, 9),
            begun("a", 3, 1),
            begun("a", 3, 2),
            begun("a/b", 1, 1),
        ];
        let mut mixed: Vec<_> = uploads.iter().rev().cloned().collect();
        sort(&mut mixed);
        assert!(
            mixed
                .iter()
                .map(|upload| upload.id)
                .eq(uploads.iter().map(|upload| upload.id))
        );
        for (at, upload) in uploads.iter().enumerate() {
            let behind = uploads.iter().filter(|other| Place::of(upload).is_before(other));
            assert_eq!(behind.count(), uploads.len() - at - 1);
        }
        let count = |place: Place| uploads.iter().filter(|upload| place.is_before(upload)).count();
        assert_eq!(count(Place::before_all_of(b"a")), 4);
        assert_eq!(count(Place::behind_all_of(b"a")), 1);
        assert_eq!(count(Place::behind_all_of(b"a/b")), 0);
    }

    #[test]
    fn an_inquiry_is_about_uploads_of_one_writer_below_a_prefix() {
        let meant = begun("tmp/a", 5, 1);
        assert!(inquiry("tmp/").is_about(&meant));
        let others = [
            Inquiry {
                bucket: "other".into(),
                ..inquiry("")
            },
            Inquiry {
                writer: "other".into(),
                ..inquiry("")
            },
            Inquiry {
                behind: Some(Place::of(&meant)),
                ..inquiry("")
            },
            inquiry("tmp/b"),
        ];
        assert!(others.iter().all(|other| !other.is_about(&meant)));
    }

    #[test]
    fn what_does_not_fit_one_answer_is_in_the_next_one() {
        let big = |key| {
            let mut upload = Upload::clone(&begun(key, 1, 1));
            upload
                .headers
                .insert("x-amz-meta-long", "x".repeat(1 << 20).parse().unwrap());
            Arc::new(upload)
        };
        let uploads = [big("a"), big("b")];
        let (first, more) = read_page(&write_page(&uploads)).unwrap();
        assert!(more && first.len() == 1);
        let (last, more) = read_page(&write_page(&uploads[1..])).unwrap();
        assert!(!more && last[0].name == uploads[1].name);
    }
}
