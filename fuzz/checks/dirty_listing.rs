//! Promises about listings of the lake's objects and dirty ones, for any request of a client and any answer
//! of the lake.
//!
//! An input is `query LF page`.

use http::uri::PathAndQuery;
use http::{HeaderMap, Method};
use shoal_s3::operation::{Query, classify};
use shoal_writeback::{Listing, NewerNames, UploadListing};

/// Panics when a promise is broken.
pub(crate) fn check(data: &[u8]) {
    let Some((query, page)) = std::str::from_utf8(data)
        .ok()
        .and_then(|text| text.split_once('\n'))
    else {
        return;
    };
    let Ok(target) = PathAndQuery::try_from(format!("/bucket?{query}")) else {
        return;
    };
    let Ok(asked) = classify(&Method::GET, &target, None, &HeaderMap::new(), None) else {
        return;
    };
    if let Some(listing) = Listing::parse(&asked.query) {
        let none = NewerNames::default();
        is_listed(&listing.query(&asked.query, &none), page, |page| {
            listing.merge(page, &none).map(|merged| merged.document)
        });
    }
    let listing = UploadListing::parse(&asked.query);
    is_listed(&listing.query(&asked.query), page, |page| {
        listing.merge(page, &[])
    });
}

fn is_listed(for_the_lake: &Query, page: &str, merge: impl Fn(&[u8]) -> Option<String>) {
    assert!(
        PathAndQuery::try_from(format!("/bucket?{for_the_lake}")).is_ok(),
        "the lake can be asked"
    );
    if let Some(merged) = merge(page.as_bytes()) {
        assert!(merge(merged.as_bytes()).is_some(), "what is shown is a page");
    }
}
