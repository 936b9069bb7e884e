//! One member of etcd: connections to it, and this user's token there.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::header::{AUTHORIZATION, CONTENT_TYPE, HOST};
use http::{HeaderValue, Request, StatusCode, Uri};
use http_body_util::{BodyExt, Full, LengthLimitError, Limited};
use hyper::body::Incoming;
use hyper::client::conn::http1::{self, SendRequest};
use hyper::service::Service;
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::service::TowerToHyperService;
use parking_lot::Mutex;
use rustls::{AlertDescription, ClientConfig};
use shoal_base::causes;
use shoal_base::secret::Secret;
use tokio::time::{Instant, timeout_at};

use super::refusal::Refusal;

/// Maximum number of idle connections.
const IDLE_MAX: usize = 256;
/// Maximum size of an answer.
const ANSWER_BYTES_MAX: usize = 32 << 20;

type Sender = SendRequest<Full<Bytes>>;

/// One member.
pub(super) struct Member {
    address: Uri,
    host: HeaderValue,
    connector: TowerToHyperService<HttpsConnector<HttpConnector>>,
    idle: Mutex<Vec<Sender>>,
    /// The token, if one was requested. Locked during a request, so that there is only one at a time.
    pub(super) token: tokio::sync::Mutex<Option<Arc<Token>>>,
}

/// Replaces the user's name and password for some minutes.
pub(super) struct Token(Secret);

impl Token {
    pub(super) fn new(token: String) -> Self {
        Self(Secret::new(token))
    }
}

/// A request to a member.
pub(super) struct Post<'a> {
    pub(super) path: &'static str,
    pub(super) body: Bytes,
    pub(super) token: Option<&'a Token>,
    /// The request fails as unsent if there is no connection by then.
    pub(super) connect_by: Instant,
    /// The request fails if it is not answered by then.
    pub(super) answer_by: Instant,
}

/// The answer to a request.
pub(super) struct Answer {
    pub(super) status: StatusCode,
    pub(super) body: Bytes,
}

impl Member {
    pub(super) fn new(address: Uri, tls: ClientConfig) -> Self {
        let mut tcp = HttpConnector::new();
        tcp.enforce_http(false);
        tcp.set_nodelay(true);
        tcp.set_keepalive(Some(Duration::from_secs(30)));
        let connector = HttpsConnectorBuilder::new()
            .with_tls_config(tls)
            .https_or_http()
            .enable_http1()
            .wrap_connector(tcp);
        let host = address.authority().map_or("", |authority| authority.as_str());
        Self {
            host: HeaderValue::from_str(host).expect("the host of a URL is a header's value"),
            address,
            connector: TowerToHyperService::new(connector),
            idle: Mutex::default(),
            token: tokio::sync::Mutex::default(),
        }
    }

    /// Its address, for messages.
    pub(super) fn name(&self) -> &str {
        self.address
            .authority()
            .map_or("", |authority| authority.as_str())
    }

    /// Sends a request and reads the answer.
    pub(super) async fn post(&self, post: Post<'_>) -> Result<Answer, Refusal> {
        let answer_by = post.answer_by;
        loop {
            let (mut sender, reused) = match self.pop() {
                Some(sender) => (sender, true),
                None => (self.connect(post.connect_by.min(answer_by)).await?, false),
            };
            let answering = sender.try_send_request(self.request(&post));
            let response = match timeout_at(answer_by, answering).await {
                Ok(Ok(response)) => response,
                // The member has closed the idle connection.
                Ok(Err(unsent)) if unsent.message().is_some() => {
                    if reused {
                        continue;
                    }
                    return Err(Refusal::NotNow(causes::line(unsent.error())));
                }
                Ok(Err(lost)) => return Err(lost_because(lost.error())),
                Err(_elapsed) => return Err(Refusal::Unsure("it did not answer in time".into())),
            };
            let answer = timeout_at(answer_by, read(response)).await;
            let answer = answer.map_err(|_| Refusal::Unsure("its answer did not end in time".into()))??;
            self.push(sender);
            return Ok(answer);
        }
    }

    async fn connect(&self, by: Instant) -> Result<Sender, Refusal> {
        let connecting = async {
            let stream = self.connector.call(self.address.clone()).await.map_err(|error| {
                if causes::find::<rustls::Error>(&*error).is_some() {
                    Refusal::Untrusted(causes::line(&*error))
                } else {
                    Refusal::NotNow(causes::line(&*error))
                }
            })?;
            let (sender, connection) = http1::handshake(stream)
                .await
                .map_err(|error| Refusal::NotNow(causes::line(&error)))?;
            // Ends with its sender; the request that uses it reports its errors.
            tokio::spawn(connection);
            Ok(sender)
        };
        let connected = timeout_at(by, connecting).await;
        connected.unwrap_or_else(|_elapsed| Err(Refusal::NotNow("it cannot be connected to in time".into())))
    }

    fn request(&self, post: &Post<'_>) -> Request<Full<Bytes>> {
        let mut request = Request::post(post.path)
            .body(Full::new(post.body.clone()))
            .expect("a path of ours is valid");
        let headers = request.headers_mut();
        headers.insert(HOST, self.host.clone());
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        if let Some(token) = post.token
            && let Ok(mut value) = HeaderValue::from_str(token.0.expose())
        {
            value.set_sensitive(true);
            headers.insert(AUTHORIZATION, value);
        }
        request
    }

    fn pop(&self) -> Option<Sender> {
        let mut idle = self.idle.lock();
        while let Some(sender) = idle.pop() {
            if sender.is_ready() {
                return Some(sender);
            }
        }
        None
    }

    fn push(&self, sender: Sender) {
        let mut idle = self.idle.lock();
        if idle.len() < IDLE_MAX && !sender.is_closed() {
            idle.push(sender);
        }
    }
}

async fn read(response: http::Response<Incoming>) -> Result<Answer, Refusal> {
    let status = response.status();
    match Limited::new(response.into_body(), ANSWER_BYTES_MAX)
        .collect()
        .await
    {
        Ok(body) => Ok(Answer {
            status,
            body: body.to_bytes(),
        }),
        Err(error) if error.is::<LengthLimitError>() => Err(Refusal::TooLarge),
        Err(error) => Err(Refusal::Unsure(causes::line(&*error))),
    }
}

/// A member that rejects this node's certificate reports that only after the request was sent, and has not
/// read it.
fn lost_because(error: &hyper::Error) -> Refusal {
    let refused = match causes::find(error) {
        Some(rustls::Error::AlertReceived(alert)) => CERTIFICATE_ALERTS.contains(alert),
        _ => false,
    };
    let lost = if refused {
        Refusal::Untrusted
    } else {
        Refusal::Unsure
    };
    lost(causes::line(error))
}

const CERTIFICATE_ALERTS: [AlertDescription; 7] = [
    AlertDescription::BadCertificate,
    AlertDescription::UnsupportedCertificate,
    AlertDescription::CertificateRevoked,
    AlertDescription::CertificateExpired,
    AlertDescription::CertificateUnknown,
    AlertDescription::UnknownCA,
    AlertDescription::CertificateRequired,
];
