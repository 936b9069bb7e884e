//! STS, the Security Token Service of AWS (version 2011-06-15), as `MinIO` and Ceph have it, too: requests
//! for temporary keys, and their answers.
//!
//! A node passes requests on and reads the answers; it decides about no right.

mod answer;
mod request;

pub use self::answer::{StsAnswer, StsError, error_document};
pub use self::request::{Action, FORM_BYTES_MAX, StsRefusal, StsRequest};

/// The version of the protocol.
const VERSION: &str = "2011-06-15";

/// The namespace of AWS's documents.
const NAMESPACE: &str = "https://sts.amazonaws.com/doc/2011-06-15/";
