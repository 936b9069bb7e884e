//! Promises about the requests of nodes to each other for dirty objects and uploads in parts, for any bytes.

use std::fmt::Debug;

use http::uri::PathAndQuery;
use shoal_node::dirty::homes::{Request, UploadRequest};

/// Panics when a promise is broken.
pub(crate) fn check(data: &[u8]) {
    let Some(target) = std::str::from_utf8(data)
        .ok()
        .and_then(|text| PathAndQuery::try_from(text).ok())
    else {
        return;
    };
    is_said_again(&target, Request::parse, Request::target);
    is_said_again(&target, UploadRequest::parse, UploadRequest::target);
}

/// What is understood can be said again, and means the same.
fn is_said_again<T: Debug, E: Debug>(
    target: &PathAndQuery,
    parse: fn(&PathAndQuery) -> Result<T, E>,
    say: fn(&T) -> Option<PathAndQuery>,
) {
    let Ok(heard) = parse(target) else {
        return;
    };
    if let Some(said) = say(&heard) {
        let again = parse(&said).expect("what a node says is understood");
        assert_eq!(format!("{again:?}"), format!("{heard:?}"));
    }
}
