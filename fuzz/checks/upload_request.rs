//! What must hold of what nodes ask each other about uploads in parts, whatever it is.

use http::uri::PathAndQuery;
use shoal::dirty::UploadRequest;

/// What is understood can be said again, and means the same. Panics when a promise is broken.
pub(crate) fn check(data: &[u8]) {
    let Some(target) = std::str::from_utf8(data)
        .ok()
        .and_then(|text| PathAndQuery::try_from(text).ok())
    else {
        return;
    };
    let Ok(heard) = UploadRequest::parse(&target) else {
        return;
    };
    if let Some(said) = heard.target() {
        let again = UploadRequest::parse(&said).expect("what a node says is understood");
        assert_eq!(format!("{again:?}"), format!("{heard:?}"));
    }
}
