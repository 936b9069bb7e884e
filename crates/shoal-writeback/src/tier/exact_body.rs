//! A body that has exactly the announced length.

use std::cmp::Ordering;

use bytes::Bytes;
use futures_util::StreamExt;
use futures_util::stream;

use super::store::ByteStream;

/// Passes a body of `size_bytes` through. Withholds the last bytes until the body has ended, so that a store
/// never receives all bytes of a body that fails at its end.
///
/// The stream fails with the body's error, or if the body has another length.
pub(super) fn exactly(size_bytes: u64, body: ByteStream) -> ByteStream {
    // The body, the number of bytes so far, and the last bytes, while the body may still fail.
    let state = (body.fuse(), 0, None::<Bytes>);
    stream::try_unfold(state, move |(mut body, mut got_bytes, mut held)| async move {
        while let Some(bytes) = body.next().await {
            let bytes = bytes?;
            got_bytes += bytes.len() as u64;
            match got_bytes.cmp(&size_bytes) {
                _ if bytes.is_empty() => {}
                Ordering::Less => return Ok(Some((bytes, (body, got_bytes, held)))),
                Ordering::Equal => {
                    let before = held.replace(bytes);
                    assert!(before.is_none(), "a body has its last byte once");
                }
                Ordering::Greater => {
                    return Err(format!("the body has more than the announced {size_bytes} bytes").into());
                }
            }
        }
        if got_bytes < size_bytes {
            return Err(format!("the body ended after {got_bytes} of {size_bytes} bytes").into());
        }
        Ok(held.take().map(|bytes| (bytes, (body, got_bytes, held))))
    })
    .boxed()
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use futures_util::{StreamExt, TryStreamExt, stream};
    use shoal_net::endpoint::BoxError;

    use super::exactly;

    /// Returns the bytes that were passed through, and the error.
    async fn pass(size_bytes: u64, body: &[Result<&'static str, &'static str>]) -> (String, Option<String>) {
        let body: Vec<Result<Bytes, BoxError>> = body
            .iter()
            .map(|item| (*item).map(Bytes::from).map_err(Into::into))
            .collect();
        let mut passed = exactly(size_bytes, stream::iter(body).boxed());
        let mut seen = Vec::new();
        loop {
            match passed.try_next().await {
                Ok(Some(bytes)) => seen.extend_from_slice(&bytes),
                Ok(None) => return (String::from_utf8(seen).unwrap(), None),
                Err(error) => return (String::from_utf8(seen).unwrap(), Some(error.to_string())),
            }
        }
    }

    #[tokio::test]
    async fn a_body_of_the_right_length_passes() {
        assert_eq!(pass(0, &[]).await, (String::new(), None));
        assert_eq!(pass(0, &[Ok("")]).await, (String::new(), None));
        assert_eq!(
            pass(4, &[Ok("ab"), Ok(""), Ok("cd"), Ok("")]).await,
            ("abcd".into(), None)
        );
    }

    #[tokio::test]
    async fn a_store_never_receives_all_of_a_body_that_fails() {
        let short = pass(4, &[Ok("ab")]).await;
        assert_eq!(
            short,
            ("ab".into(), Some("the body ended after 2 of 4 bytes".into()))
        );
        let long = "the body has more than the announced 4 bytes".to_owned();
        assert_eq!(
            pass(4, &[Ok("ab"), Ok("cd"), Ok("e")]).await,
            ("ab".into(), Some(long))
        );
        let failed = pass(4, &[Ok("ab"), Ok("cd"), Err("bad checksum")]).await;
        assert_eq!(failed, ("ab".into(), Some("bad checksum".into())));
        let (seen, error) = pass(0, &[Ok("a")]).await;
        assert!(seen.is_empty() && error.is_some());
    }
}
