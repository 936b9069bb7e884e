//! The listener at which clients get temporary keys.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::SystemTime;

use base64::Engine as _;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use futures_util::FutureExt as _;
use http::header::AUTHORIZATION;
use http::request::Parts;
use http::{HeaderMap, Method, Request, StatusCode};
use http_body_util::{BodyExt as _, Limited};
use hyper::service::service_fn;
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};
use shoal_base::chance;
use shoal_net::clock;
use shoal_net::http::connection::ClientBody;
use shoal_net::http::listener::{ConnectionLimits, RemoteEnd, serve};
use shoal_net::http::pages::{Page, not_allowed, page};
use shoal_net::http::tls::TlsReloader;
use shoal_net::key_lookup::Found;
use shoal_net::metrics::ConnectionMetrics;
use shoal_net::shutdown::Shutdown;
use shoal_s3::auth::Gate;
use shoal_s3::error::{ErrorCode, S3Error};
use shoal_s3::error_xml::RequestId;
use shoal_s3::identity::Caller;
use shoal_s3::operation::Query;
use shoal_s3::sigv4::{PayloadHash, STS};
use shoal_s3::sts::{FORM_BYTES_MAX, StsRefusal, StsRequest, error_document};
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;
use tokio::net::TcpListener;

use super::relay::{Exchanged, NoKey, Relay};
use crate::core::Core;

/// The path of the endpoint of credentials.
const CREDENTIALS: &str = "/v1/credentials";

const JSON: &str = "application/json";
const XML: &str = "text/xml";

/// Answers clients that ask for temporary keys.
pub(crate) struct CredentialsServer {
    relay: Arc<Relay>,
    core: Arc<Core>,
    /// Verifies requests to STS that identities sign.
    gate: Gate,
    limits: ConnectionLimits,
}

impl CredentialsServer {
    pub(crate) fn new(core: &Arc<Core>, relay: Relay) -> Self {
        let gate = Gate::new(Arc::clone(&core.identities), &core.config.lake.region);
        Self {
            relay: Arc::new(relay),
            core: Arc::clone(core),
            gate: gate.of_service(STS).without_anonymous(),
            limits: ConnectionLimits::from(&core.config.limits),
        }
    }

    /// Serves until the node stops, on the same guarded connections as S3.
    pub(crate) async fn serve(
        self,
        listener: TcpListener,
        tls: Option<Arc<TlsReloader>>,
        stopping: Shutdown,
    ) {
        if let Some(tls) = &tls {
            tokio::spawn(Arc::clone(tls).watch(stopping.clone()));
        }
        let (limits, server) = (self.limits, Arc::new(self));
        let connection = move |_: RemoteEnd| {
            let server = Arc::clone(&server);
            service_fn(move |request| {
                let server = Arc::clone(&server);
                async move { Ok::<_, Infallible>(server.respond(request).await) }.boxed()
            })
        };
        serve(
            listener,
            tls,
            limits,
            ConnectionMetrics::default(),
            stopping,
            connection,
        )
        .await;
    }

    async fn respond(&self, request: Request<ClientBody>) -> Page {
        match (request.method(), request.uri().path()) {
            (&Method::GET, CREDENTIALS) => match self.credentials(&request).await {
                Ok(exchanged) => page(StatusCode::OK, JSON, document(&exchanged)),
                Err(NoKey {
                    status,
                    code,
                    message,
                }) => page(status, JSON, json!({ "code": code, "message": message })),
            },
            (_, CREDENTIALS) => not_allowed("only GET is understood here\n", "GET"),
            (&Method::POST, "/") => match self.sts(request).await {
                Ok(exchanged) => page(StatusCode::OK, XML, Text(&exchanged.answer)),
                Err(NoKey {
                    status,
                    code,
                    message,
                }) => {
                    let id = RequestId::new(chance::bits());
                    let document = error_document(&code, &message, status.is_client_error(), id.as_str());
                    page(status, XML, document)
                }
            },
            (_, "/") => not_allowed("only POST is understood here\n", "POST"),
            _ => page(
                StatusCode::NOT_FOUND,
                JSON,
                json!({ "code": "NotFound", "message": "This port has /v1/credentials, and STS at /." }),
            ),
        }
    }

    /// Answers `GET /v1/credentials?role=ARN` with the token in `Authorization`, as SDKs ask a container's
    /// agent.
    async fn credentials(&self, request: &Request<ClientBody>) -> Result<Exchanged, NoKey> {
        let token = token(request.headers()).ok_or_else(|| {
            let message =
                "The request has no token. Set AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE to a file with one.";
            NoKey::new(StatusCode::UNAUTHORIZED, "AccessDenied", message)
        })?;
        let query = Query::parse(request.uri().query());
        let query =
            query.map_err(|error| NoKey::new(StatusCode::BAD_REQUEST, "InvalidArgument", error.message))?;
        let role = query.get("role").unwrap_or_default();
        let request = StsRequest::web_identity(role, &subject(token), token);
        self.relay.exchange(request, None).await
    }

    /// Answers a request to STS.
    async fn sts(&self, request: Request<ClientBody>) -> Result<Exchanged, NoKey> {
        let bad = |message: String| NoKey::new(StatusCode::BAD_REQUEST, "InvalidParameterValue", message);
        let (mut parts, body) = request.into_parts();
        let body = Limited::new(body, FORM_BYTES_MAX).collect().await;
        let body = body.map_err(|_| {
            bad(format!(
                "A request to STS is a form of at most {FORM_BYTES_MAX} bytes."
            ))
        })?;
        let body = body.to_bytes();
        // `object_store` sends the parameters in the query.
        let query = parts.uri.query().unwrap_or_default().as_bytes();
        let form = if body.is_empty() { query } else { &body };
        let request = StsRequest::parse(form).map_err(|refusal| {
            let error = bad(refusal.to_string());
            match refusal {
                StsRefusal::UnknownAction(_) => NoKey {
                    code: "InvalidAction".into(),
                    ..error
                },
                _ => error,
            }
        })?;
        let asker = if request.action().is_signed() {
            // Clients of STS do not send the hash, and sign that of the body.
            let hash = PayloadHash::Sha256(Sha256::digest(&body).into());
            parts
                .headers
                .insert("x-amz-content-sha256", hash.to_header_value());
            Some(self.asker(&parts).await?)
        } else {
            None
        };
        self.relay.exchange(request, asker).await
    }

    /// Returns the identity that has signed a request to STS.
    async fn asker(&self, parts: &Parts) -> Result<Caller, NoKey> {
        let mut admitted = self.gate.admit(parts, clock::utc_now());
        if let Err(refusal) = &admitted
            && self.core.may_find(refusal)
        {
            if self.core.find_key(refusal).await == Found::Unsure {
                let message = "A node or key source that may know the access key did not answer. Try again.";
                return Err(NoKey::unavailable(message));
            }
            admitted = self.gate.admit(parts, clock::utc_now());
        }
        let verified = admitted.map_err(|refusal| {
            let error = S3Error::from(refusal);
            let code = match error.code {
                ErrorCode::InvalidAccessKeyId => "InvalidClientTokenId",
                code => code.as_str(),
            };
            NoKey::new(StatusCode::FORBIDDEN, code, error.message)
        })?;
        Ok(verified.caller)
    }
}

/// Returns the token of a request. SDKs send the content of the token file as it is.
fn token(headers: &HeaderMap) -> Option<&str> {
    let token = headers.get(AUTHORIZATION)?.to_str().ok()?.trim();
    let token = token.strip_prefix("Bearer ").unwrap_or(token).trim();
    (!token.is_empty()).then_some(token)
}

/// Returns the subject that a token claims, or `""`. It only names the session in the log of the lake: STS
/// verifies the token.
fn subject(token: &str) -> String {
    let claims = token.split('.').nth(1);
    let claims = claims.and_then(|claims| BASE64_URL_SAFE_NO_PAD.decode(claims).ok());
    let claims = claims.and_then(|claims| serde_json::from_slice::<Value>(&claims).ok());
    let subject = claims.as_ref().and_then(|claims| claims["sub"].as_str());
    subject.unwrap_or_default().into()
}

/// Returns a key in the form that SDKs read.
fn document(exchanged: &Exchanged) -> Value {
    let account = &exchanged.key.account;
    json!({
        "AccessKeyId": account.access_key,
        "SecretAccessKey": account.secret_key.expose(),
        "Token": exchanged.key.token().expose(),
        "Expiration": rfc3339(exchanged.expiration),
    })
}

fn rfc3339(time: SystemTime) -> String {
    OffsetDateTime::from(time).format(&Rfc3339).unwrap_or_default()
}

/// Bytes that are shown as the text that they are.
struct Text<'a>(&'a [u8]);

impl std::fmt::Display for Text<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&String::from_utf8_lossy(self.0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_subject_is_what_the_token_claims() {
        let token = |claims: &str| format!("e30.{}.sig", BASE64_URL_SAFE_NO_PAD.encode(claims));
        assert_eq!(
            subject(&token(r#"{"sub":"system:serviceaccount:ns:etl"}"#)),
            "system:serviceaccount:ns:etl"
        );
        for other in [
            "",
            "x",
            "a.b.c",
            &token("{}"),
            &token(r#"{"sub":7}"#),
            &token("["),
        ] {
            assert_eq!(subject(other), "", "{other}");
        }
    }

    #[test]
    fn the_token_is_all_of_the_header_or_what_follows_bearer() {
        let of = |value: &str| {
            let headers = HeaderMap::from_iter([(AUTHORIZATION, value.parse().unwrap())]);
            token(&headers).map(str::to_owned)
        };
        assert_eq!(of("e.y.J").as_deref(), Some("e.y.J"));
        assert_eq!(of("Bearer e.y.J").as_deref(), Some("e.y.J"));
        assert_eq!(of(" "), None);
        assert_eq!(token(&HeaderMap::new()), None);
    }
}
