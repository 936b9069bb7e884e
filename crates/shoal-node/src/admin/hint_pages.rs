//! The pages of hints: where engines send their events (`/api/v1/lineage`), and what became of them
//! (`/hints`).

use std::io::Read as _;

use flate2::read::MultiGzDecoder;
use http::header::CONTENT_ENCODING;
use http::{HeaderMap, HeaderValue, Method, Request, StatusCode, header};
use http_body_util::{BodyExt as _, Limited};
use serde_json::value::RawValue;
use serde_json::{Value, json};
use shoal_hints::EVENT_BYTES_MAX;
use shoal_net::http::connection::ClientBody;
use shoal_net::http::pages::{Page, not_allowed, only_read, page, text};
use shoal_orders::hints::Hints;
use shoal_orders::tasks::{TaskRefusal, Tasks};
use tokio::task::spawn_blocking;

use super::task_pages::{json_page, message_page};

/// Maximum number of events in a batch, and the longest batch in bytes.
const BATCH_EVENTS_MAX: usize = 1_000;
const BATCH_BYTES_MAX: usize = 16 << 20;

/// The number of hints in one answer, the latest ones.
const LISTED: usize = 200;

/// The time after which an engine may send again what was too much, in seconds.
const AGAIN_SECONDS: u32 = 1;

/// A page of hints.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum HintPage {
    /// `/api/v1/lineage`: an event of OpenLineage.
    Event,
    /// `/api/v1/lineage/batch`: a list of events.
    Batch,
    /// `/hints`: the latest hints.
    Hints,
    /// `/runs`: what runs read and wrote, as `shoal plan` reads it.
    Runs,
}

impl HintPage {
    /// Returns the page at a path, if it is one of hints.
    pub(super) fn at(path: &str) -> Option<Self> {
        match path {
            "/api/v1/lineage" => Some(Self::Event),
            "/api/v1/lineage/batch" => Some(Self::Batch),
            "/hints" => Some(Self::Hints),
            "/runs" => Some(Self::Runs),
            _ => None,
        }
    }

    /// Returns true if engines send events there.
    pub(super) const fn is_for_engines(self) -> bool {
        matches!(self, Self::Event | Self::Batch)
    }

    /// Answers a request for the page.
    pub(super) async fn answer(self, tasks: &Tasks, hints: &Hints, request: Request<ClientBody>) -> Page {
        if !self.is_for_engines() {
            if let Some(refusal) = only_read(request.method()) {
                return refusal;
            }
            return match self {
                Self::Runs => page(StatusCode::OK, "application/x-ndjson", hints.log.lines()),
                _ => json_page(StatusCode::OK, json!({ "hints": tasks.hints(LISTED).await })),
            };
        }
        if *request.method() != Method::POST {
            return not_allowed("only POST is understood here\n", "POST");
        }
        let bytes_max = if self == Self::Batch {
            BATCH_BYTES_MAX
        } else {
            EVENT_BYTES_MAX
        };
        let json = match body(request, bytes_max).await {
            Ok(json) => json,
            Err(refusal) => return refusal,
        };
        match self {
            Self::Batch => batch(hints, &json),
            _ => match hints.receive(&json) {
                Ok(()) => page(StatusCode::CREATED, "text/plain; charset=utf-8", String::new()),
                Err(refusal) => refused(&refusal),
            },
        }
    }
}

/// Reads a body, which may be compressed.
async fn body(request: Request<ClientBody>, bytes_max: usize) -> Result<Vec<u8>, Page> {
    let too_long = || {
        let why = format!(
            "an event has at most {} MiB, a batch {} MiB, or it did not come in full\n",
            EVENT_BYTES_MAX >> 20,
            BATCH_BYTES_MAX >> 20
        );
        page(StatusCode::PAYLOAD_TOO_LARGE, "text/plain; charset=utf-8", why)
    };
    let is_packed = match encoding(request.headers()) {
        "" | "identity" => false,
        "gzip" => true,
        _ => {
            let why = "events come as they are, or in gzip\nhint: leave the compression out, or write gzip\n";
            return Err(text(StatusCode::UNSUPPORTED_MEDIA_TYPE, why));
        }
    };
    let body = Limited::new(request.into_body(), bytes_max).collect().await;
    let body = body.map_err(|_| too_long())?.to_bytes();
    if !is_packed {
        return Ok(body.into());
    }
    let unpacked = spawn_blocking(move || {
        let mut unpacked = Vec::new();
        let mut packed = MultiGzDecoder::new(&body[..]).take(bytes_max as u64 + 1);
        packed.read_to_end(&mut unpacked).map(|_| unpacked)
    });
    match unpacked.await {
        Ok(Ok(json)) if json.len() <= bytes_max => Ok(json),
        Ok(Ok(_)) => Err(too_long()),
        _ => Err(text(StatusCode::BAD_REQUEST, "the body is not gzip\n")),
    }
}

fn encoding(headers: &HeaderMap) -> &str {
    let given = headers.get(CONTENT_ENCODING);
    given.map_or("", |given| given.to_str().unwrap_or("?").trim())
}

/// Takes a batch, and says which of its events were not taken: the answer has the form that clients of
/// OpenLineage know.
fn batch(hints: &Hints, json: &[u8]) -> Page {
    let events: Vec<&RawValue> = match serde_json::from_slice(json) {
        Ok(events) => events,
        Err(error) => {
            return message_page(
                StatusCode::BAD_REQUEST,
                &format!("the body is no list of events: {error}"),
            );
        }
    };
    if events.len() > BATCH_EVENTS_MAX {
        let why = format!("a batch has at most {BATCH_EVENTS_MAX} events");
        return message_page(StatusCode::PAYLOAD_TOO_LARGE, &why);
    }
    let outcomes = events.iter().map(|event| hints.receive(event.get().as_bytes()));
    let failed: Vec<Value> = outcomes
        .enumerate()
        .filter_map(|(index, outcome)| {
            let TaskRefusal { status, why } = outcome.err()?;
            let retriable = status.is_server_error();
            Some(json!({ "index": index, "reason": why, "retriable": retriable }))
        })
        .collect();
    let retriable = failed.iter().filter(|event| event["retriable"] == true).count();
    let word = match failed.len() {
        0 => "success",
        some if some < events.len() => "partial_success",
        _ => "failure",
    };
    let answer = json!({
        "status": word,
        "summary": {
            "received": events.len(),
            "successful": events.len() - failed.len(),
            "failed": failed.len(),
            "retriable": retriable,
            "non_retriable": failed.len() - retriable,
        },
        "failed_events": failed,
    });
    json_page(StatusCode::OK, answer)
}

fn refused(refusal: &TaskRefusal) -> Page {
    let mut page = message_page(refusal.status, &refusal.why);
    if refusal.status == StatusCode::SERVICE_UNAVAILABLE {
        page.headers_mut()
            .insert(header::RETRY_AFTER, HeaderValue::from(AGAIN_SECONDS));
    }
    page
}
