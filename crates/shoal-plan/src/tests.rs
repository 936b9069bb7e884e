//! Helpers that the tests of several modules share.

use crate::model::Request;

/// Returns the request of `shoal-lab`, whose types are those of another build of this crate.
pub(crate) fn table1() -> Request {
    let request = serde_json::to_value(shoal_lab::netco::table1::request()).expect("it is JSON");
    serde_json::from_value(request).expect("both builds have one form")
}
