//! Applies the metering of the link to the requests of an endpoint.

use std::sync::Arc;

use http::header::RANGE;
use http::{HeaderMap, Method};
use shoal_policy::link::Direction;
use shoal_s3::object::ObjectName;
use shoal_s3::target;

use super::Transport;
use super::pool::Pool;
use crate::endpoint::request::Head;
use crate::link::{Flow, JobRate, Transfer};

impl Transport {
    /// Returns the rates of jobs that read the object of this request by plan, if the client does not say
    /// which job it is.
    fn promised_rates(&self, head: &Head) -> Vec<Arc<JobRate>> {
        let names_no_job = head.transfer.as_ref().is_none_or(Transfer::names_no_job);
        let may_be_promised = self.promises.has_any() && names_no_job && head.method == Method::GET;
        let read = may_be_promised.then(|| target::object(&head.context.target));
        read.flatten().map_or_else(Vec::new, |name| {
            let newest = ObjectName {
                version: None,
                ..name
            };
            self.promises.of(newest.id(&head.context.endpoint))
        })
    }

    /// Returns the connection pool for a transfer. Background transfers use connections with small receive
    /// windows, because all bytes in those windows cross the link before a client's next byte.
    pub(super) fn pool_for(&self, transfer: Option<&Transfer>) -> &Arc<Pool> {
        let background = self.background.as_ref();
        let background = background.filter(|_| transfer.is_some_and(Transfer::is_in_background));
        background.unwrap_or(&self.pool)
    }

    /// Returns the pacing of the body of a request that writes.
    pub(in crate::endpoint) fn up(&self, head: &Head) -> Option<Box<Flow>> {
        let link = self.link.as_ref()?;
        if head.is_of_client() {
            link.expect_client(Direction::Up);
        }
        Some(Box::new(link.up(head.transfer.clone(), head.payer)))
    }

    /// Returns the pacing of the body of a response.
    pub(in crate::endpoint) fn down(&self, head: &Head) -> Option<Box<Flow>> {
        if head.method == Method::HEAD {
            return None;
        }
        let flow = match &self.link {
            Some(link) => {
                if head.is_of_client() && head.method == Method::GET {
                    link.expect_client(Direction::Down);
                }
                let flow = link.down(head.transfer.clone(), head.payer);
                flow.promised(self.promised_rates(head))
            }
            None => Flow::unmetered(head.transfer.as_ref(), head.payer)?,
        };
        Some(Box::new(flow))
    }
}

/// Returns the number of bytes that a request with `Range: bytes=first-last` asks for.
pub(in crate::endpoint) fn expected_bytes(headers: &HeaderMap) -> Option<u64> {
    let range = headers.get(RANGE)?.to_str().ok()?;
    let (first, last) = range.strip_prefix("bytes=")?.split_once('-')?;
    let (first, last): (u64, u64) = (first.parse().ok()?, last.parse().ok()?);
    last.checked_sub(first)?.checked_add(1)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::Duration;

    use http::header::RANGE;
    use http::uri::PathAndQuery;
    use http::{HeaderMap, HeaderValue, Method};
    use http_body_util::BodyExt as _;
    use shoal_policy::fair::Payer;
    use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader};
    use tokio::net::{TcpListener, TcpStream};

    use super::expected_bytes;
    use crate::endpoint::{
        Endpoint, EndpointRequest, LakeAccount, LakeBody, LakeConfig, NodeCredentials, RepeatableGet,
        SendOptions,
    };
    use crate::limits::Limits;
    use crate::link::{Bandwidth, BandwidthScope, Purpose};

    const SOMEONE: Payer = Payer { id: 1, share: 1 };
    const ANSWER_TIMEOUT: Duration = Duration::from_secs(1);

    /// Answers one request for the rest of an object of `size` bytes, with at most `most` of them.
    async fn answer(connection: TcpStream, size: usize, most: usize) {
        let mut connection = BufReader::new(connection);
        let mut first = 0;
        loop {
            let mut line = String::new();
            connection.read_line(&mut line).await.unwrap();
            if let Some(range) = line.strip_prefix("range: bytes=") {
                first = range.split('-').next().unwrap().parse().unwrap();
            }
            if line.trim().is_empty() {
                break;
            }
        }
        let head = format!(
            "HTTP/1.1 206 Partial Content\r\netag: \"e\"\r\ncontent-range: bytes {first}-{}/{size}\r\n\
             content-length: {}\r\n\r\n",
            size - 1,
            size - first
        );
        connection.write_all(head.as_bytes()).await.unwrap();
        let body = vec![7; most.min(size - first)];
        connection.write_all(&body).await.unwrap();
    }

    /// Returns a node with a link of 1 MB/s to a lake with one object of `size` bytes, and the body of a
    /// prefetch of it, which breaks off after `cut` bytes.
    async fn prefetched(size: usize, cut: usize) -> (Arc<Endpoint>, LakeBody) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        tokio::spawn(async move {
            for most in [cut, size] {
                let (connection, _) = listener.accept().await.unwrap();
                answer(connection, size, most).await;
            }
        });
        let config = LakeConfig {
            endpoint: format!("http://{address}"),
            answer_timeout: ANSWER_TIMEOUT,
            bandwidth: Some(Bandwidth {
                bytes_per_second: 1_000_000,
                scope: BandwidthScope::Node,
            }),
            ..LakeConfig::default()
        };
        let endpoint = Endpoint::new(&config, &Limits::default(), NodeCredentials::default()).unwrap();
        let endpoint = Arc::new(endpoint);
        let range = HeaderValue::try_from(format!("bytes=0-{}", size - 1)).unwrap();
        let (target, account) = (PathAndQuery::from_static("/b/k"), LakeAccount::Anonymous);
        let request = EndpointRequest::new("get_object", Method::GET, target, account, SOMEONE);
        let request = request.with_headers(HeaderMap::from_iter([(RANGE, range)]));
        let transfer = Purpose::Prefetch.transfer();
        let get = RepeatableGet::of(&endpoint, &request).within(transfer.as_ref());
        let options = SendOptions::within(transfer.as_ref());
        let response = endpoint.send_with(request, options).await.unwrap();
        let (etag, size) = (HeaderValue::from_static("\"e\""), size as u64);
        let rest = get.resumes(etag, None, size, 0..size, Arc::new(|| ()));
        (endpoint, response.into_body().resumed_by(rest))
    }

    #[tokio::test]
    async fn a_body_that_breaks_does_not_wait_for_its_own_bytes() {
        let (_endpoint, body) = prefetched(128 << 10, 64 << 10).await;
        let object = body.collect().await.unwrap().to_bytes();
        assert_eq!(object.len(), 128 << 10);
    }

    #[tokio::test]
    async fn a_body_that_breaks_may_wait_for_the_link_longer_than_for_the_lake() {
        // Permission for the first response covers all of it: its end arrives although clients have the link.
        let (endpoint, body) = prefetched(32 << 10, 16 << 10).await;
        let mut client = endpoint.link().unwrap().down(None, SOMEONE);
        let reads = async {
            loop {
                std::future::poll_fn(|cx| client.poll_permitted(cx, None)).await;
                client.moved(client.permitted(16 << 10));
                tokio::task::yield_now().await;
            }
        };
        let clients = tokio::time::timeout(3 * ANSWER_TIMEOUT, reads);
        let (object, _) = tokio::join!(body.collect(), clients);
        assert_eq!(object.unwrap().to_bytes().len(), 32 << 10);
    }

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
