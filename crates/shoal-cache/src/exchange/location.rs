//! Rewrites the location of a new object to the address that the client used. The lake returns its own
//! address, which clients may not be able to reach.

use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::{Bytes, BytesMut};
use http::request::Parts;
use http::uri::Authority;
use http::{Method, Uri, header};
use http_body::Body as _;
use shoal_net::endpoint::{BoxError, LakeBody};
use shoal_s3::operation::{Operation, is_in_host};
use shoal_s3::xml::Element;

use super::admitted::{Admitted, host};

/// Limit on the documents that name an object.
const DOCUMENT_BYTES_MAX: usize = 64 << 10;

/// The replacement for the lake's addresses in a response.
#[derive(Clone, Debug)]
pub struct Relocation {
    lake: Authority,
    bucket: String,
    address: Address,
}

/// The address at which a client reaches this node.
#[derive(Clone, Debug)]
pub struct Address {
    /// Scheme and host, the start of every URL.
    origin: String,
    /// True if the client uses virtual-host style.
    bucket_in_host: bool,
}

impl Address {
    /// Returns the URL of an object of `bucket`. `key` is percent-encoded.
    pub fn of_object(&self, bucket: &str, key: &str) -> String {
        let origin = &self.origin;
        if self.bucket_in_host {
            format!("{origin}/{key}")
        } else {
            format!("{origin}/{bucket}/{key}")
        }
    }
}

/// The addresses of this node.
#[derive(Debug)]
pub struct Addresses {
    lake: Option<Authority>,
    domain: Option<String>,
    scheme: &'static str,
}

impl Addresses {
    /// Creates the addresses of a node that serves `scheme` and, in virtual-host style, the buckets below
    /// `domain`. They replace the lake's address, `lake_url`.
    pub fn new(lake_url: &str, domain: Option<String>, scheme: &'static str) -> Self {
        let lake = lake_url.parse::<Uri>().ok();
        Self {
            lake: lake.and_then(|url| url.authority().cloned()),
            domain,
            scheme,
        }
    }

    /// Returns the replacement for the lake's addresses, if the response to this request may contain any.
    pub fn relocation(&self, admitted: &Admitted) -> Option<Relocation> {
        let Admitted {
            parts, classified, ..
        } = admitted;
        let makes_object = classified.operation == Operation::CompleteMultipartUpload
            || is_form(parts, classified.operation);
        let address = self.as_used_by(parts).filter(|_| makes_object)?;
        Some(Relocation {
            lake: self.lake.clone()?,
            bucket: classified.bucket.as_deref()?.to_owned(),
            address,
        })
    }

    /// Returns the address at which the sender of the request reaches this node.
    pub fn as_used_by(&self, parts: &Parts) -> Option<Address> {
        let host = host(parts)?;
        let domain = self.domain.as_deref();
        Some(Address {
            origin: format!("{}://{host}", self.scheme),
            bucket_in_host: domain.is_some_and(|domain| is_in_host(host, domain)),
        })
    }
}

/// Returns true if the request is a browser's upload by HTML form.
fn is_form(parts: &Parts, operation: Operation) -> bool {
    let kind = parts.headers.get(header::CONTENT_TYPE);
    let is_form = kind.is_some_and(|kind| kind.as_bytes().starts_with(b"multipart/form-data"));
    is_form && parts.method == Method::POST && operation == Operation::OtherWrite
}

impl Relocation {
    /// Returns `location` with the client's address, or `None` if it is not in this bucket of the lake.
    pub(super) fn of(&self, location: &str) -> Option<String> {
        let uri: Uri = location.parse().ok()?;
        let host = uri.authority()?.as_str();
        let bucket_and_key = if host == self.lake.as_str() {
            uri.path().strip_prefix('/')?.split_once('/')
        } else {
            let bucket = host.strip_suffix(self.lake.as_str())?.strip_suffix('.')?;
            Some((bucket, uri.path().strip_prefix('/')?))
        };
        let (bucket, key) = bucket_and_key.filter(|(bucket, _)| *bucket == self.bucket)?;
        Some(self.address.of_object(bucket, key))
    }

    /// Returns the document with the client's address, or `None` if it contains no address of the lake.
    fn rewrite(&self, bytes: &[u8]) -> Option<Bytes> {
        let mut root = Element::from_answer(bytes).ok()?;
        let location = self.of(&root.text_of("Location")?)?;
        root.set_text_of("Location", &location);
        let written = root.to_document();
        // A declaration that arrived by itself has already been sent.
        let begins = if bytes.starts_with(b"<?") {
            0
        } else {
            written.find("?>").map_or(0, |end| end + 2)
        };
        Some(Bytes::copy_from_slice(written[begins..].trim_start().as_bytes()))
    }
}

/// A document of the lake that is rewritten once it is complete. Its XML declaration, and the whitespace with
/// which a lake keeps the connection alive, are sent at once.
pub struct AddressedDocument {
    body: LakeBody,
    held: BytesMut,
    relocation: Relocation,
}

impl AddressedDocument {
    pub(super) fn new(body: LakeBody, relocation: Relocation) -> Self {
        Self {
            body,
            held: BytesMut::new(),
            relocation,
        }
    }

    /// Returns the next bytes of the document; `None` at its end.
    pub(super) fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Bytes, BoxError>>> {
        loop {
            let Some(frame) = ready!(Pin::new(&mut self.body).poll_frame(cx)).transpose()? else {
                let held = self.take_held();
                let sent = self.relocation.rewrite(&held).unwrap_or(held);
                return Poll::Ready((!sent.is_empty()).then_some(Ok(sent)));
            };
            let data = frame.into_data().unwrap_or_default();
            if self.held.is_empty() && is_ahead(&data) && !data.is_empty() {
                return Poll::Ready(Some(Ok(data)));
            }
            self.held.extend_from_slice(&data);
            if self.held.len() > DOCUMENT_BYTES_MAX {
                return Poll::Ready(Some(Ok(self.take_held())));
            }
        }
    }

    /// Returns true if no byte is left.
    pub(super) fn is_at_end(&self) -> bool {
        self.held.is_empty() && self.body.is_end_stream()
    }

    fn take_held(&mut self) -> Bytes {
        std::mem::take(&mut self.held).freeze()
    }
}

/// Returns true if the bytes precede the root element: whitespace, or a whole declaration.
fn is_ahead(data: &[u8]) -> bool {
    let text = data.trim_ascii();
    let is_declaration = text.starts_with(b"<?") && memchr::memchr(b'>', text) == Some(text.len() - 1);
    text.is_empty() || is_declaration
}

#[cfg(test)]
mod tests {
    use super::*;

    fn relocation(bucket_in_host: bool) -> Relocation {
        Relocation {
            lake: Authority::from_static("lake:9000"),
            bucket: "b".into(),
            address: Address {
                origin: "https://node".into(),
                bucket_in_host,
            },
        }
    }

    #[test]
    fn the_lakes_address_becomes_the_clients_however_each_names_the_bucket() {
        for location in ["http://lake:9000/b/a%2Fk", "https://b.lake:9000/a%2Fk"] {
            assert_eq!(
                relocation(false).of(location).as_deref(),
                Some("https://node/b/a%2Fk")
            );
            assert_eq!(
                relocation(true).of(location).as_deref(),
                Some("https://node/a%2Fk")
            );
        }
        for location in [
            "http://lake:9001/b/k",
            "http://other/b/k",
            "http://lake:9000/bb/k",
            "http://bb.lake:9000/k",
            "http://xlake:9000/b/k",
            "/b/k",
            "",
        ] {
            assert_eq!(relocation(false).of(location), None, "{location}");
        }
    }

    #[test]
    fn only_the_address_in_a_document_changes() {
        let document = |host: &str| {
            format!("<R xmlns=\"u\"><Location>{host}/b/k</Location><ETag>&quot;e&quot;</ETag></R>")
        };
        let declaration = "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n";
        for ahead in ["", declaration] {
            let theirs = format!("{ahead}{}", document("http://lake:9000"));
            let ours = format!("{ahead}{}", document("https://node"));
            assert_eq!(relocation(false).rewrite(theirs.as_bytes()).unwrap(), ours);
        }
        for other in [
            "<Error><Code>InternalError</Code></Error>",
            "no XML",
            "<R><Location>x</Location>",
            "",
        ] {
            assert_eq!(relocation(false).rewrite(other.as_bytes()), None, "{other}");
        }
    }

    #[test]
    fn bytes_ahead_of_a_document_do_not_wait_for_it() {
        for ahead in [
            "",
            " ",
            "\n\n",
            "<?xml version=\"1.0\"?>",
            "<?xml version=\"1.0\"?>\n  ",
        ] {
            assert!(is_ahead(ahead.as_bytes()), "{ahead}");
        }
        for root in ["<R", "<R>", "<?xml version=\"1.0\"?><R>", "<?xml"] {
            assert!(!is_ahead(root.as_bytes()), "{root}");
        }
    }
}
