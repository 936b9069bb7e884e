//! The HTTP side of the lake: connections, the life of one request, and the bodies both ways.

use std::convert::Infallible;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use futures_util::stream;
use http::header::CONTENT_LENGTH;
use http::{HeaderName, HeaderValue, Method, Response};
use http_body::Frame;
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Empty, StreamBody};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use parking_lot::Mutex;
use tokio::net::TcpListener;
use tokio::task::JoinSet;

use super::answer::{Answer, AnswerBody};
use super::fault::{BodyFault, Cut, Fault};
use super::object::{Content, hex};
use super::read::read;
use super::request::Request;
use super::signature::{Signed, verify};
use super::state::State;
use super::wire::{Wire, WireControl};
use super::write::write;
use crate::chunks::{self, Decoded};

type AnswerStream = UnsyncBoxBody<Bytes, io::Error>;

/// Pieces of a body when no fault says otherwise.
const PIECE_BYTES: usize = 64 << 10;

/// Time for the bytes before a cut to leave the process.
const FLUSH_TIME: Duration = Duration::from_millis(20);

/// Serves until dropped; the connections end with it.
pub(super) async fn serve(listener: TcpListener, state: Arc<Mutex<State>>) {
    let mut connections = JoinSet::new();
    loop {
        let Ok((stream, _peer)) = listener.accept().await else {
            continue;
        };
        stream.set_nodelay(true).unwrap();
        let wire = WireControl::default();
        let io = TokioIo::new(Wire::new(stream, wire.clone()));
        let state = Arc::clone(&state);
        connections.spawn(async move {
            let answer = service_fn(move |request| answer(request, Arc::clone(&state), wire.clone()));
            // A client that goes away, or a fault we were asked for: nothing to report.
            drop(http1::Builder::new().serve_connection(io, answer).await);
        });
        while connections.try_join_next().is_some() {}
    }
}

/// A port of its own, or the one it had before.
pub(super) async fn bind(address: SocketAddr) -> TcpListener {
    TcpListener::bind(address).await.unwrap()
}

async fn answer(
    request: http::Request<Incoming>,
    state: Arc<Mutex<State>>,
    wire: WireControl,
) -> Result<Response<AnswerStream>, Infallible> {
    let (head, body) = request.into_parts();
    let mut record = Request::new(&head);
    let signed = verify(&head, |access_key| state.lock().users.get(access_key).cloned());
    if let Ok(Some(signed)) = &signed {
        record.access_key = Some(signed.access_key.clone());
    }
    let (index, fault) = state.lock().receive(&record);
    let log = Log { state, index };
    let is_head = record.method == Method::HEAD;

    let answer = match signed {
        Err(code) => Answer::error(code, &record.path),
        Ok(signed) if fault.by_head => decide(&record, signed, &[], &fault, &log),
        Ok(signed) => {
            if let Some(gate) = &fault.body_gate {
                gate.pass().await;
            }
            match receive(body, &log).await {
                None => Answer::error("IncompleteBody", &record.path),
                Some(body) => {
                    if let Some(gate) = &fault.gate {
                        gate.pass().await;
                    }
                    tokio::time::sleep(fault.head_delay).await;
                    decide(&record, signed, &body, &fault, &log)
                }
            }
        }
    };
    if let Some(raw) = &fault.raw {
        wire.replace(raw.clone());
    } else if fault.resets {
        wire.reset();
    } else {
        log.update(|record| record.status = Some(answer.status));
    }
    let may_encode = record
        .header("accept-encoding")
        .is_some_and(|accepted| accepted.contains("gzip"));
    let answer = if may_encode && log.state.lock().encodes {
        answer.encoded()
    } else {
        answer
    };
    let answer = if is_head { answer.without_body() } else { answer };
    Ok(response(answer, fault, log, wire))
}

fn decide(record: &Request, signed: Option<Signed>, body: &[u8], fault: &Fault, log: &Log) -> Answer {
    if let Some(status) = fault.status {
        return Answer::trouble(status);
    }
    let mut state = log.state.lock();
    let answer = if record.is_get() || record.is_head() {
        let mut asked = record.headers.clone();
        for name in &fault.ignores {
            asked.remove(*name);
        }
        read(&state, record, &asked)
    } else {
        payload(record, signed, body)
            .and_then(|(body, trailers)| write(&mut state, record, body.into(), &trailers))
    };
    answer.unwrap_or_else(|code| Answer::error(code, &record.path))
}

/// The request body, or `None` if it broke off: then nothing is stored.
async fn receive(mut body: Incoming, log: &Log) -> Option<Bytes> {
    let mut bytes = BytesMut::new();
    while let Some(frame) = body.frame().await {
        let frame = frame.ok()?;
        if let Some(data) = frame.data_ref() {
            bytes.extend_from_slice(data);
            log.update(|record| record.body_received += data.len() as u64);
        }
    }
    log.update(|record| record.body_complete = true);
    Some(bytes.freeze())
}

/// The bytes that the body stands for, when it is what the request head says it is.
fn payload(record: &Request, signed: Option<Signed>, body: &[u8]) -> Result<Decoded, &'static str> {
    use sha2::{Digest, Sha256};

    let claimed = record
        .header("x-amz-content-sha256")
        .unwrap_or("UNSIGNED-PAYLOAD");
    let (body, trailers) = match claimed {
        "UNSIGNED-PAYLOAD" => (body.to_vec(), Vec::new()),
        "STREAMING-UNSIGNED-PAYLOAD-TRAILER" => chunks::decode(body, None, true)?,
        "STREAMING-AWS4-HMAC-SHA256-PAYLOAD" | "STREAMING-AWS4-HMAC-SHA256-PAYLOAD-TRAILER" => {
            let signer = signed.ok_or("AccessDenied")?.chunks;
            chunks::decode(body, Some(signer), claimed.ends_with("-TRAILER"))?
        }
        hash if hash == hex(&Sha256::digest(body)) => (body.to_vec(), Vec::new()),
        _ => return Err("XAmzContentSHA256Mismatch"),
    };
    let length = record.header("x-amz-decoded-content-length").map(str::parse);
    if length.is_some_and(|length| length != Ok(body.len())) {
        return Err("IncompleteBody");
    }
    for (name, value) in &record.headers {
        let checksum = chunks::Checksum::named(name.as_str());
        if checksum.is_some_and(|checksum| checksum.of(&body).as_bytes() != value.as_bytes()) {
            return Err("BadDigest");
        }
    }
    Ok((body, trailers))
}

fn response(answer: Answer, fault: Fault, log: Log, wire: WireControl) -> Response<AnswerStream> {
    let Answer {
        status,
        mut headers,
        body,
    } = answer;
    for (name, value) in &fault.headers {
        headers.insert(
            HeaderName::from_static(name),
            HeaderValue::from_str(value).unwrap(),
        );
    }
    for name in &fault.without_headers {
        headers.remove(*name);
    }
    let (content, range) = match body {
        AnswerBody::Content(content, range) if !range.is_empty() => (content, range),
        _ => {
            log.update(|record| record.answered = true);
            let mut response = Response::new(Empty::new().map_err(|never| match never {}).boxed_unsync());
            *response.status_mut() = status;
            *response.headers_mut() = headers;
            return response;
        }
    };
    headers
        .entry(CONTENT_LENGTH)
        .or_insert_with(|| (range.end - range.start).into());
    let sending = Sending {
        content,
        position: range.start,
        end: range.end,
        sent: 0,
        fault: fault.body,
        log,
        wire,
    };
    let mut response =
        Response::new(StreamBody::new(stream::unfold(Some(sending), next_piece)).boxed_unsync());
    *response.status_mut() = status;
    *response.headers_mut() = headers;
    response
}

/// A response body on its way.
struct Sending {
    content: Content,
    position: u64,
    end: u64,
    sent: u64,
    fault: BodyFault,
    log: Log,
    wire: WireControl,
}

impl Drop for Sending {
    fn drop(&mut self) {
        self.log.update(|record| record.abandoned = !record.answered);
    }
}

async fn next_piece(sending: Option<Sending>) -> Option<(io::Result<Frame<Bytes>>, Option<Sending>)> {
    let mut sending = sending?;
    let due = |at: u64| sending.sent >= at;
    if let Some((_, hook)) = sending.fault.hook.as_ref().filter(|(at, _)| due(*at)) {
        hook.run();
    }
    if let Some((_, cut)) = sending.fault.cut.filter(|(at, _)| due(*at)) {
        tokio::time::sleep(FLUSH_TIME).await;
        match cut {
            Cut::Stall => return std::future::pending().await,
            Cut::Reset => sending.wire.reset(),
            Cut::Close => {}
        }
        return Some((Err(io::ErrorKind::ConnectionAborted.into()), None));
    }
    if sending.position == sending.end {
        return None;
    }
    let (piece, pause) = sending.fault.pace.unwrap_or((PIECE_BYTES, Duration::ZERO));
    if !pause.is_zero() {
        tokio::time::sleep(pause).await;
    }
    let stops = [
        sending.fault.cut.map(|(at, _)| at),
        sending.fault.hook.as_ref().map(|(at, _)| *at),
    ];
    let to_stop = stops
        .into_iter()
        .flatten()
        .filter(|at| *at > sending.sent)
        .map(|at| at - sending.sent)
        .min();
    let length = (piece as u64)
        .min(sending.end - sending.position)
        .min(to_stop.unwrap_or(u64::MAX));
    let mut bytes = sending.content.read(sending.position..sending.position + length);
    if sending.fault.damage && sending.position + length == sending.end {
        let mut damaged = bytes.to_vec();
        *damaged.last_mut().expect("a piece is not empty") ^= 1;
        bytes = damaged.into();
    }
    sending.position += length;
    sending.sent += length;
    // A body of known length is not asked for its end.
    let last = sending.position == sending.end && sending.fault.cut.is_none_or(|(at, _)| at > sending.sent);
    sending.log.update(|record| {
        record.body_sent += length;
        record.answered = last;
    });
    Some((Ok(Frame::data(bytes)), Some(sending)))
}

/// Where a request is recorded.
struct Log {
    state: Arc<Mutex<State>>,
    index: usize,
}

impl Log {
    fn update(&self, update: impl FnOnce(&mut Request)) {
        // A lake that forgot its requests meanwhile has nothing to update.
        if let Some(record) = self.state.lock().log.get_mut(self.index) {
            update(record);
        }
    }
}
