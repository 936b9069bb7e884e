//! How an endpoint uses a metered link.

use std::sync::Arc;

use http::header::RANGE;
use http::{HeaderMap, Method, Response};
use shoal_policy::link::Direction;
use shoal_s3::object::ObjectName;
use shoal_s3::target;

use super::pool::Pool;
use super::{Endpoint, EndpointError, Head, LakeBody};
use crate::link::{Flow, Link, PlannedRate, Promises, Transfer};

/// A metered link, and the reads over it to which plans promise a rate.
pub(super) struct Metered {
    link: Arc<Link>,
    promises: Promises,
}

impl Metered {
    pub(super) fn of(link: Arc<Link>) -> Self {
        let promises = Promises::default();
        Self { link, promises }
    }
}

impl Endpoint {
    /// Returns the link that requests go over, if it is metered.
    pub fn link(&self) -> Option<&Arc<Link>> {
        Some(&self.metered.as_ref()?.link)
    }

    /// Returns the link, if it is metered, and the promises of plans to reads over it.
    pub fn promises(&self) -> Option<(&Arc<Link>, &Promises)> {
        let metered = self.metered.as_ref()?;
        Some((&metered.link, &metered.promises))
    }

    /// Returns the pool of a transfer's connections. Those for transfers that no client waits for have small
    /// receive windows: what the system takes in goes over the link before a client's next byte.
    pub(super) fn pool_for(&self, transfer: Option<&Transfer>) -> &Arc<Pool> {
        let background = self.background.as_ref();
        let background = background.filter(|_| transfer.is_some_and(|transfer| !transfer.is_hurried()));
        background.unwrap_or(&self.pool)
    }

    /// Returns what paces the body of a request that writes, and what paces that of its answer.
    pub(super) fn flows(&self, head: &Head) -> (Option<Box<Flow>>, Option<Box<Flow>>) {
        let up = self.link().map(|link| {
            if head.transfer.is_none() {
                link.expect_client(Direction::Up);
            }
            Box::new(link.up(head.transfer.clone(), head.payer))
        });
        (up, self.down(head))
    }

    /// Returns what paces the body of an answer.
    pub(super) fn down(&self, head: &Head) -> Option<Box<Flow>> {
        if head.method == Method::HEAD {
            return None;
        }
        let flow = match &self.metered {
            Some(Metered { link, promises }) => {
                if head.transfer.is_none() && head.method == Method::GET {
                    link.expect_client(Direction::Down);
                }
                let flow = link.down(head.transfer.clone(), head.payer);
                flow.promised(self.promised_rates(promises, head))
            }
            None => Flow::unmetered(head.transfer.as_ref(), head.payer)?,
        };
        Some(Box::new(flow))
    }

    /// The rates that plans promise to a client's read.
    fn promised_rates(&self, promises: &Promises, head: &Head) -> Vec<Arc<PlannedRate>> {
        let may_be_promised = promises.has_any() && head.transfer.is_none() && head.method == Method::GET;
        let read = may_be_promised.then(|| target::object(&head.context.target));
        read.flatten().map_or_else(Vec::new, |name| {
            let newest = ObjectName {
                version: None,
                ..name
            };
            promises.of(newest.id(&self.url))
        })
    }
}

/// Returns the same answer, whose body comes as `flow` permits.
pub(super) fn paced(
    answer: Result<Response<LakeBody>, EndpointError>,
    flow: Option<Box<Flow>>,
) -> Result<Response<LakeBody>, EndpointError> {
    match flow {
        None => answer,
        flow => answer.map(|answer| answer.map(|body| body.paced_by(flow))),
    }
}

/// The number of bytes that a request with `Range: bytes=first-last` asks for.
pub(super) fn expected_bytes(headers: &HeaderMap) -> Option<u64> {
    let range = headers.get(RANGE)?.to_str().ok()?;
    let (first, last) = range.strip_prefix("bytes=")?.split_once('-')?;
    let (first, last): (u64, u64) = (first.parse().ok()?, last.parse().ok()?);
    last.checked_sub(first)?.checked_add(1)
}

#[cfg(test)]
mod tests {
    use http::HeaderMap;
    use http::header::RANGE;

    use super::expected_bytes;

    #[test]
    fn only_a_range_with_both_ends_tells_how_many_bytes_come() {
        let expected = |range: &'static str| {
            let headers = HeaderMap::from_iter([(RANGE, range.parse().unwrap())]);
            expected_bytes(&headers)
        };
        assert_eq!(expected("bytes=4-7"), Some(4));
        for other in [
            "bytes=4-",
            "bytes=-4",
            "bytes=7-4",
            "bytes=0-1,3-4",
            "bytes=0-18446744073709551615",
        ] {
            assert_eq!(expected(other), None, "{other}");
        }
        assert_eq!(expected_bytes(&HeaderMap::new()), None);
    }
}
