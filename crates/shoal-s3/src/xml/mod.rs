//! XML as S3 uses it. Every document that the node reads, writes or rewrites passes through here.
//!
//! [`Document`] and [`Reader`] parse a document by the rules of XML 1.0 and its namespaces: comments, CDATA,
//! references and prefixes are spellings of one content. [`Element`] holds a part of a document and writes it
//! again. The node acts on the content that it read, and writes documents for other systems from that
//! content: there is no second reading of the same bytes that could differ. A document that the reader does
//! not understand is [`Malformed`].

mod answer;
mod completion;
mod deletion;
mod element;
mod error;
mod listing;
mod read;

pub use self::answer::{completed_etag, copied_etag, upload_id};
pub use self::completion::{Completion, ListedPart, PARTS_MAX};
pub use self::deletion::{Deleted, Deletion, DeletionResult, KEYS_MAX, Key};
pub use self::element::{Element, shown};
pub use self::error::ErrorDocument;
pub use self::listing::{ListedObject, Listing};
pub use self::read::{Document, Reader, Tag};

/// The namespace of S3's documents. A client may leave it out.
pub const NAMESPACE: &str = "http://s3.amazonaws.com/doc/2006-03-01/";

/// A document that is not XML, or has content that its schema does not define.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the XML is not well-formed, or says what the schema does not know")]
pub struct Malformed;

/// Fills a place that a document may fill only once.
fn set<T>(place: &mut Option<T>, value: T) -> Result<(), Malformed> {
    match place.replace(value) {
        None => Ok(()),
        Some(_) => Err(Malformed),
    }
}
