//! The body of a response: empty, bytes in memory, blocks of a version, or the lake's bytes.

use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use shoal_net::endpoint::{BoxError, LakeBody};
use shoal_net::fair::in_flight::InFlightPermit;
use shoal_net::trace::Span;

use super::location::AddressedDocument;
use super::record::Record;
use crate::blocks::{BlockStream, ReadTally};

/// The body of a response. Dropping it ends the request and records it, even if it was not sent completely.
pub struct ResponseBody {
    content: Content,
    record: Option<Box<Record>>,
    /// The span of the request, if it is traced. It ends with this body.
    span: Option<Box<Span>>,
    /// Released at the end of the body.
    permit: Option<InFlightPermit>,
}

enum Content {
    /// The body of a response to a HEAD: has a length, but no bytes.
    Head(u64),
    Full(Bytes),
    Blocks {
        stream: Box<BlockStream>,
        remaining: u64,
    },
    Lake(Box<LakeBody>),
    Document(Box<AddressedDocument>),
}

impl ResponseBody {
    /// An empty body.
    pub fn empty() -> Self {
        Self::full(Bytes::new())
    }

    /// A body with the length of an object, but no bytes.
    pub fn head(len: u64) -> Self {
        Content::Head(len).into()
    }

    /// A body of bytes in memory.
    pub fn full(bytes: Bytes) -> Self {
        Content::Full(bytes).into()
    }

    /// A body of blocks of a version, `len` bytes in total.
    pub fn blocks(stream: Box<BlockStream>, len: u64) -> Self {
        Content::Blocks {
            stream,
            remaining: len,
        }
        .into()
    }

    /// A body of the lake's bytes, passed on as they arrive.
    pub fn lake(body: LakeBody) -> Self {
        Content::Lake(Box::new(body)).into()
    }

    /// A document of the lake, rewritten to contain the address that the client uses.
    pub(super) fn document(document: AddressedDocument) -> Self {
        Content::Document(Box::new(document)).into()
    }

    /// Writes the record of the request when this body ends.
    #[must_use]
    pub fn recorded(mut self, mut record: Box<Record>) -> Self {
        record.is_relayed = matches!(self.content, Content::Lake(_) | Content::Document(_));
        self.span = record.span.take();
        self.record = Some(record);
        self
    }

    /// Ends `span` when this body ends.
    #[must_use]
    pub fn traced(mut self, span: Box<Span>) -> Self {
        self.span = Some(span);
        self
    }

    /// Holds the permit of a request in flight until this body ends.
    #[must_use]
    pub fn holding(mut self, permit: InFlightPermit) -> Self {
        self.permit = Some(permit);
        self
    }

    /// Drops the content, to turn a response into that of a HEAD.
    pub fn without_content(&mut self) {
        self.content = Content::Full(Bytes::new());
    }
}

impl Content {
    fn poll_frame(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        match self {
            Self::Head(_) => Poll::Ready(None),
            Self::Full(bytes) => {
                let bytes = std::mem::take(bytes);
                Poll::Ready((!bytes.is_empty()).then(|| Ok(Frame::data(bytes))))
            }
            Self::Blocks { stream, remaining } => stream.poll_next(cx).map(|piece| {
                let Some(piece) = piece else {
                    assert_eq!(*remaining, 0, "a body has the bytes that its length announces");
                    return None;
                };
                Some(piece.map_err(BoxError::from).map(|piece| {
                    let left = remaining.checked_sub(piece.len() as u64);
                    *remaining = left.expect("a body has no byte past its length");
                    Frame::data(piece)
                }))
            }),
            Self::Lake(body) => Pin::new(body.as_mut()).poll_frame(cx).map_err(Into::into),
            Self::Document(document) => document.poll_next(cx).map_ok(Frame::data),
        }
    }
}

impl From<Content> for ResponseBody {
    fn from(content: Content) -> Self {
        Self {
            content,
            record: None,
            span: None,
            permit: None,
        }
    }
}

impl Body for ResponseBody {
    type Data = Bytes;
    /// Why the body ends early. The connection is then aborted, so that the client cannot mistake the part
    /// for the whole.
    type Error = BoxError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        let this = &mut *self;
        let frame = match this.span.as_ref().map(|span| span.parent()) {
            None => this.content.poll_frame(cx),
            Some(parent) => parent.within(|| this.content.poll_frame(cx)),
        };
        if let Poll::Ready(Some(frame)) = &frame {
            let bytes = frame
                .as_ref()
                .ok()
                .and_then(Frame::data_ref)
                .map_or(0, Bytes::len);
            if let Some(span) = &mut this.span {
                match frame {
                    Ok(_) => span.body_bytes(bytes),
                    Err(_) => span.failed("broken-off"),
                }
            }
            match (frame, &mut this.record) {
                (Ok(_), Some(record)) => record.sent(bytes),
                (Err(error), Some(record)) => record.broke_off(error.as_ref()),
                (_, None) => {}
            }
        }
        frame
    }

    fn is_end_stream(&self) -> bool {
        match &self.content {
            Content::Head(_) => true,
            Content::Full(bytes) => bytes.is_empty(),
            Content::Blocks { remaining, .. } => *remaining == 0,
            Content::Lake(body) => body.is_end_stream(),
            Content::Document(document) => document.is_at_end(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.content {
            Content::Head(len) => SizeHint::with_exact(*len),
            Content::Full(bytes) => SizeHint::with_exact(bytes.len() as u64),
            Content::Blocks { remaining, .. } => SizeHint::with_exact(*remaining),
            Content::Lake(body) => body.size_hint(),
            Content::Document(_) => SizeHint::default(),
        }
    }
}

impl Drop for ResponseBody {
    fn drop(&mut self) {
        let tally = match &self.content {
            Content::Blocks { stream, .. } => stream.sent,
            _ => ReadTally::default(),
        };
        if let Some(record) = &self.record {
            if let Some(span) = &mut self.span {
                record.describe(span, tally);
            }
            record.end(tally);
        }
    }
}
