//! Which uploads are kept, asked of all nodes for a listing.

use std::sync::Arc;

use shoal_base::encoding::{Malformed, Reader, write_bytes};
use shoal_policy::NodeId;

use super::UploadRequest;
use crate::dirty::AuthorityUnreachable;
use crate::dirty::homes::directory::ask_all;
use crate::dirty::homes::page::{read_first, write_first};
use crate::dirty::homes::view::View;
use crate::dirty::homes::{Answer, Homes};
use crate::dirty::multipart::{Upload, UploadPosition, UploadQuery, sort};

pub(super) fn write_inquiry(inquiry: &UploadQuery, out: &mut Vec<u8>) {
    write_bytes(out, inquiry.bucket.as_bytes());
    write_bytes(out, &inquiry.prefix);
    write_bytes(out, inquiry.writer.as_bytes());
    UploadPosition::write(inquiry.behind.as_ref(), out);
}

/// Inverse of [`write_inquiry`].
pub(super) fn read_inquiry(reader: &mut Reader<'_>) -> Result<UploadQuery, Malformed> {
    Ok(UploadQuery {
        bucket: reader.text()?.into(),
        prefix: reader.bytes()?.into(),
        writer: reader.text()?.into(),
        behind: UploadPosition::read(reader)?,
    })
}

impl Homes {
    /// Every upload that is kept by a node of the cluster and is meant, in the order in which they are
    /// listed.
    pub async fn list_uploads(
        self: &Arc<Self>,
        inquiry: &UploadQuery,
    ) -> Result<Vec<Arc<Upload>>, AuthorityUnreachable> {
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
        mut inquiry: UploadQuery,
    ) -> Result<Option<Vec<Arc<Upload>>>, AuthorityUnreachable> {
        let mut uploads = Vec::new();
        loop {
            let request = UploadRequest::List(view.digest, Box::new(inquiry.clone()));
            let Answer::Done(body) = self.ask_about_uploads(node, request).await? else {
                return Ok(None);
            };
            let (listed, more) = read_page(&body).map_err(|_| AuthorityUnreachable)?;
            inquiry.behind = listed.last().map(|last| UploadPosition::of(last));
            uploads.extend(listed);
            if !more {
                return Ok(Some(uploads));
            }
        }
    }

    /// Tells of the uploads that this node keeps somebody who sees the same cluster.
    pub(super) fn tell_uploads(&self, view: u64, inquiry: &UploadQuery) -> Answer {
        if self.home.is_settled_in(view).is_none() {
            return Answer::Unsettled;
        }
        let mut uploads = self.uploads.table.lock().meant_by(inquiry);
        sort(&mut uploads);
        Answer::Done(write_page(&uploads).into())
    }
}

fn write_page(uploads: &[Arc<Upload>]) -> Vec<u8> {
    write_first(uploads, |upload, out| upload.write(out)).0
}

/// Inverse of [`write_page`].
fn read_page(bytes: &[u8]) -> Result<(Vec<Arc<Upload>>, bool), Malformed> {
    let mut reader = Reader::new(bytes);
    let page = read_first(&mut reader, |reader| Upload::read(reader).map(Arc::new))?;
    reader.rest().is_empty().then_some(page).ok_or(Malformed)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::{Upload, read_page, write_page};
    use crate::dirty::multipart::tests::begun;

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
