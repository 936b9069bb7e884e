//! Requests to other nodes for blocks, and offers of blocks to them.
//!
//! A node calls a peer as it calls the lake ([`shoal_net::endpoint`]), over a connection on which both nodes
//! have authenticated each other ([`shoal_net::channel`]). Requests therefore need no signature of their own.
//! A request names the caller's identity, and the peer signs requests to the lake with the keys that it has
//! itself: from its configuration, or temporary ones ([`super::temporary_keys`]).
//!
//! The requesting node has already admitted its client, and the lake has granted that client the object; the
//! peer returns bytes of one immutable version. So this module only decides where bytes come from.

use http::{HeaderMap, HeaderName, HeaderValue};
use shoal_net::link::{JobId, Promises, Purpose};

mod client;
mod request;

pub use self::client::{Peer, PeerError, PeerTraffic};
pub use self::request::{BLOCKS, REQUEST_BYTES_MAX};
pub use self::request::{BlockRequest, CallerName};

/// Header with the class of transfer that the block is for, if no client waits for it.
pub const CLASS: HeaderName = HeaderName::from_static("x-shoal-class");

/// Header with the job of a plan that the block is for: the plan and the number of the job, in hexadecimal
/// digits.
pub const JOB: HeaderName = HeaderName::from_static("x-shoal-job-of-plan");

/// Path for liveness probes.
pub const ALIVE: &str = "/alive";

/// Header of a response with a block that the node is still fetching. Earlier builds do not send it.
pub const FETCHING: HeaderName = HeaderName::from_static("x-shoal-fetching");

/// Path at which a node returns one of its pages for operators; the request body is the page's path and
/// query.
pub const PAGES: &str = "/pages";

/// Maximum number of bytes of such a page.
pub const PAGE_BYTES_MAX: usize = 16 << 20;
/// Maximum number of bytes of the path and the query of such a page.
pub const PAGE_PATH_BYTES_MAX: usize = 8 << 10;

/// Path at which a node receives messages ([`crate::nodes::messages`]).
pub const MESSAGES: &str = "/messages";

fn job_header(id: JobId) -> HeaderValue {
    let JobId { plan, job } = id;
    HeaderValue::try_from(format!("{plan:x}.{job:x}")).expect("digits are allowed in a header")
}

fn job_of(value: &HeaderValue) -> Option<JobId> {
    let (plan, job) = value.to_str().ok()?.split_once('.')?;
    Some(JobId {
        plan: u128::from_str_radix(plan, 16).ok()?,
        job: u64::from_str_radix(job, 16).ok()?,
    })
}

/// Returns the purpose of a block that another node requests with these headers: a client's read, at the rate
/// of its job if `promises` has one, unless they name another class.
pub fn purpose(headers: &HeaderMap, promises: &Promises) -> Purpose {
    let rate = headers
        .get(JOB)
        .and_then(job_of)
        .and_then(|id| promises.of_id(id));
    if let Some(rate) = rate {
        return Purpose::Job(rate);
    }
    let word = headers.get(CLASS).and_then(|class| class.to_str().ok());
    word.and_then(Purpose::of_word).unwrap_or_default()
}
