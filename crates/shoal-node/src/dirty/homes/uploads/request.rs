//! What nodes say to each other about uploads.
//!
//! ```text
//! GET /uploads/<verb>?ask=<base64 of the rest>
//! ```
//!
//! The rest is as [`shoal_base::encoding`] writes it. Bytes of parts are blocks like others, and asked for as
//! such.

use std::time::Duration;

use http::HeaderMap;
use http::uri::PathAndQuery;
use shoal_base::encoding::{Malformed, Reader, write_headers};
use shoal_policy::VersionId;

use super::Selection;
use super::inquiry::{read_inquiry, write_inquiry};
use crate::dirty::homes::target;
use crate::dirty::multipart::{Part, UploadId, UploadQuery};

/// Where the paths of these requests begin.
pub(in crate::dirty) const PREFIX: &str = "/uploads/";

/// A question is answered from memory, or after a small file was written.
const PATIENCE: Duration = Duration::from_secs(2);

/// Whoever waits for a completion asks again.
pub(super) const COMPLETION_ROUND: Duration = Duration::from_secs(10);
const COMPLETE_PATIENCE: Duration = Duration::from_secs(15);

/// What one node says to another.
#[derive(Clone, Debug)]
pub enum UploadRequest {
    /// To the keeper: is there such an upload?
    Look(UploadId),
    /// To the keeper: which parts does it have?
    Parts(UploadId),
    /// To the keeper: this is a part of it now.
    Note(UploadId, Box<Part>),
    /// To the keeper: make an object of these parts, if what is there meets the conditions; or how far is
    /// that?
    Complete(UploadId, Selection, HeaderMap),
    /// To the keeper: it is given up.
    Abort(UploadId),
    /// To the keeper: is this part, which I hold, one of it?
    Wants(UploadId, VersionId),
    /// To anybody: which of these do you keep? With the digest of what the speaker sees of the cluster: the
    /// listener answers when it sees the same.
    List(u64, Box<UploadQuery>),
    /// To a holder: nobody needs this part any more.
    Release(VersionId),
}

impl UploadRequest {
    /// What it is called in paths.
    pub const fn verb(&self) -> &'static str {
        match self {
            Self::Look(_) => "look",
            Self::Parts(_) => "parts",
            Self::Note(..) => "note",
            Self::Complete(..) => "complete",
            Self::Abort(_) => "abort",
            Self::Wants(..) => "wants",
            Self::List(..) => "list",
            Self::Release(_) => "release",
        }
    }

    /// How long an answer is waited for.
    pub(in crate::dirty) const fn patience(&self) -> Duration {
        match self {
            Self::Complete(..) => COMPLETE_PATIENCE,
            _ => PATIENCE,
        }
    }

    /// Whether the answer may have to wait for other nodes or for the lake.
    pub(in crate::dirty) const fn waits(&self) -> bool {
        matches!(self, Self::Complete(..))
    }

    /// The target of the request; `None` when there is too much to say.
    pub fn target(&self) -> Option<PathAndQuery> {
        target::write(PREFIX, self.verb(), &self.rest())
    }

    fn rest(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(256);
        match self {
            Self::Look(id) | Self::Parts(id) | Self::Abort(id) => id.write(&mut out),
            Self::Note(id, part) => {
                id.write(&mut out);
                part.write(&mut out);
            }
            Self::Complete(id, selection, headers) => {
                id.write(&mut out);
                selection.write(&mut out);
                write_headers(&mut out, headers);
            }
            Self::Wants(id, version) => {
                id.write(&mut out);
                out.extend_from_slice(&version.0);
            }
            Self::List(view, inquiry) => {
                out.extend_from_slice(&view.to_le_bytes());
                write_inquiry(inquiry, &mut out);
            }
            Self::Release(version) => out.extend_from_slice(&version.0),
        }
        out
    }

    /// Reads a target that another node wrote.
    pub fn parse(target: &PathAndQuery) -> Result<Self, Malformed> {
        target::parse(PREFIX, target, Self::read)
    }

    fn read(verb: &str, reader: &mut Reader<'_>) -> Result<Self, Malformed> {
        match verb {
            "list" => return Ok(Self::List(reader.u64()?, Box::new(read_inquiry(reader)?))),
            "release" => return Ok(Self::Release(VersionId(reader.array()?))),
            _ => {}
        }
        let id = UploadId::read(reader)?;
        Ok(match verb {
            "look" => Self::Look(id),
            "parts" => Self::Parts(id),
            "abort" => Self::Abort(id),
            "note" => Self::Note(id, Box::new(Part::read(reader)?)),
            "complete" => Self::Complete(id, Selection::read(reader)?, reader.headers()?),
            "wants" => Self::Wants(id, VersionId(reader.array()?)),
            _ => return Err(Malformed),
        })
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use http::HeaderMap;
    use proptest::prelude::proptest;
    use shoal_policy::VersionId;

    use super::{Selection, UploadQuery, UploadRequest};
    use crate::dirty::homes::target::tests::hears_what_is_said;
    use crate::dirty::multipart::UploadPosition;
    use crate::dirty::multipart::tests::{inquiry, part, upload};

    fn requests() -> Vec<UploadRequest> {
        let (id, part) = (upload().id, part(3, 'a', 250));
        let version = part.version.id;
        let selection = Selection::of(&[Arc::new(part.clone())]);
        let behind = |place| {
            let inquiry = UploadQuery {
                behind: Some(place),
                ..inquiry("")
            };
            UploadRequest::List(7, Box::new(inquiry))
        };
        let mut conditions = HeaderMap::new();
        conditions.insert("if-none-match", "*".parse().unwrap());
        vec![
            UploadRequest::Look(id),
            UploadRequest::Parts(id),
            UploadRequest::Note(id, Box::new(part)),
            UploadRequest::Complete(id, selection, conditions),
            UploadRequest::Abort(id),
            UploadRequest::Wants(id, version),
            UploadRequest::Release(VersionId([7; 16])),
            UploadRequest::List(7, Box::new(inquiry("a/"))),
            behind(UploadPosition::of(&upload())),
            behind(UploadPosition::behind_all_of(b"k\xff")),
        ]
    }

    #[test]
    fn what_one_node_says_the_other_one_hears_and_neither_less_nor_more() {
        for said in requests() {
            hears_what_is_said(&said, &said.target().unwrap(), UploadRequest::parse);
        }
    }

    #[test]
    fn ten_thousand_parts_are_named_in_one_request() {
        let parts: Vec<_> = (1..=10_000)
            .map(|number| Arc::new(part(number, 'a', 5)))
            .collect();
        let every_other: Vec<_> = parts.iter().step_by(2).cloned().collect();
        for parts in [parts, every_other] {
            let request = UploadRequest::Complete(upload().id, Selection::of(&parts), HeaderMap::new());
            assert!(request.target().is_some());
        }
    }

    proptest! {
        #[test]
        fn any_text_is_a_request_or_refused(text in "/uploads/[a-z]{0,8}(\\?ask=[A-Za-z0-9_-]{0,200})?") {
            if let Ok(target) = text.parse::<http::uri::PathAndQuery>() {
                let _ = UploadRequest::parse(&target);
            }
        }
    }
}
