//! What must hold of listings with dirty objects in between, whatever the client asks and the lake answers.
//!
//! An input is `query LF page`.

use http::Method;
use http::uri::PathAndQuery;
use shoal::dirty::Listing;
use shoal::front::operation::classify;

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
    let Ok(asked) = classify(&Method::GET, &target, None, false, None) else {
        return;
    };
    let Some(listing) = Listing::parse(&asked.query) else {
        return;
    };
    let for_the_lake = listing.query(query);
    assert!(
        PathAndQuery::try_from(format!("/bucket?{for_the_lake}")).is_ok(),
        "the lake can be asked"
    );
    if let Some(merged) = listing.merge(page, &[]) {
        assert!(listing.merge(&merged, &[]).is_some(), "what is shown is a page");
    }
}
