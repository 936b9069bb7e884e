//! Requests that wait for permission of the link to begin.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::header::{ACCEPT_ENCODING, CONTENT_LENGTH, EXPECT, HOST};
use http::{HeaderValue, Method, Response};
use shoal_base::send_permit::SendPermit;

use super::error::RequestContext;
use super::expectation::Expectation;
use super::metering::{expected_bytes, paced};
use super::socket::PermitOver;
use super::timeouts::RequestClass;
use super::{Endpoint, EndpointError, EndpointRequest, Failure, Head, LakeBody, RequestBody};
use crate::link::{Flow, Transfer};

/// Pause between two checks that the node may still send.
const PERMIT_PAUSE: Duration = Duration::from_millis(100);

/// A request that the link has permitted to begin.
pub(super) struct PermittedRequest {
    head: Head,
    body: RequestBody,
    expectation: Option<Expectation>,
    /// Paces the body of the response.
    answer: Option<Box<Flow>>,
}

impl PermittedRequest {
    /// Requires `permit` for the request: the node may send it only while the permit is valid.
    pub(super) fn needs(&mut self, permit: Option<&SendPermit>) {
        self.head.permit = permit.cloned();
    }
}

impl Endpoint {
    /// Waits until the link and the transfer's plan permit a read to begin. A client's read and all writes
    /// begin at once.
    pub(super) async fn permitted(
        &self,
        request: EndpointRequest,
        transfer: Option<&Transfer>,
    ) -> Box<PermittedRequest> {
        let EndpointRequest {
            operation,
            method,
            target,
            mut headers,
            body,
            expects_continue,
            payload,
            account,
            payer,
        } = request;
        headers.insert(HOST, self.host.clone());
        // The node reads most responses itself and supports no encoding. Some lakes encode unless told
        // otherwise.
        headers
            .entry(ACCEPT_ENCODING)
            .or_insert(HeaderValue::from_static("identity"));
        headers.remove(CONTENT_LENGTH);
        if let Some(length) = body.content_length(&method) {
            headers.insert(CONTENT_LENGTH, length.into());
        }
        if expects_continue {
            headers.insert(EXPECT, HeaderValue::from_static("100-continue"));
        }
        let context = RequestContext {
            operation,
            endpoint: Arc::clone(&self.url),
            target,
        };
        let head = Head {
            context,
            class: RequestClass::of(&method, operation, &headers),
            method,
            headers,
            payload,
            account,
            payer,
            transfer: transfer.cloned(),
            permit: None,
        };
        let mut answer = self.down(&head);
        if let Some(flow) = answer.as_mut().filter(|_| head.class == RequestClass::Read) {
            flow.begins(expected_bytes(&head.headers)).await;
        }
        Box::new(PermittedRequest {
            head,
            body,
            expectation: expects_continue.then(Expectation::default),
            answer,
        })
    }

    /// Sends the request.
    ///
    /// # Errors
    ///
    /// Fails as [`send`](Self::send) does.
    /// Fails as [`send`](Self::send) does.
    pub(super) async fn send_permitted(
        &self,
        request: Box<PermittedRequest>,
    ) -> Result<Response<LakeBody>, EndpointError> {
        let PermittedRequest {
            head,
            body,
            expectation,
            answer,
        } = *request;
        let (context, account) = (head.context.clone(), head.account.clone());
        let permit = head.permit.clone();
        let outcome = match body {
            RequestBody::Empty if head.method == Method::GET || head.method == Method::HEAD => {
                self.read(head, Bytes::new()).await
            }
            RequestBody::Whole(body) if head.method == Method::QUERY => self.read(head, body).await,
            body => {
                let writing = Box::pin(self.write(head, body, expectation));
                within(permit, writing, &context).await
            }
        };
        let outcome = paced(outcome, answer);
        self.check_account(outcome, &account, &context).await
    }
}

/// Cancels a request when the node may no longer send it, which resets its connection.
async fn within(
    permit: Option<SendPermit>,
    writing: impl Future<Output = Result<Response<LakeBody>, EndpointError>> + Unpin,
    context: &RequestContext,
) -> Result<Response<LakeBody>, EndpointError> {
    let Some(permit) = permit else {
        return writing.await;
    };
    tokio::select! {
        biased;
        outcome = writing => outcome,
        () = over(&permit) => Err(context.failed(Failure::SessionOver, PermitOver)),
    }
}

/// Waits until the node may no longer send.
async fn over(permit: &SendPermit) {
    while permit.may_send() {
        tokio::time::sleep(PERMIT_PAUSE).await;
    }
}
