//! A small STS in the process of the test: it knows the tokens that the test gives it, makes a key for each
//! request, and adds that to the users of the lake.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use parking_lot::Mutex;
use shoal_net::clock;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;

use crate::lake::Lake;

/// A handle to a running STS.
pub(super) struct Sts {
    address: SocketAddr,
    state: Arc<Mutex<State>>,
    server: JoinHandle<()>,
}

struct State {
    lake: Lake,
    /// The subjects of the tokens that are valid.
    tokens: BTreeMap<String, String>,
    /// The access keys whose signatures are taken for right.
    known: Vec<String>,
    /// The forms that were received.
    asked: Vec<BTreeMap<String, String>>,
    /// How long keys live.
    life: Duration,
    /// The requests that it is answering, and the most of them at a time.
    under_way: usize,
    most: usize,
    /// How long it waits before it answers.
    pause: Duration,
    /// How far its clock is ahead.
    ahead: Duration,
    /// The number of requests that it answers with 409.
    conflicts: usize,
}

/// A temporary key as a client has it.
#[derive(Clone, Debug)]
pub(super) struct TemporaryKey {
    pub(super) access_key: String,
    pub(super) secret_key: String,
    pub(super) token: String,
}

impl Sts {
    pub(super) async fn start(lake: &Lake) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let state = Arc::new(Mutex::new(State {
            lake: lake.clone(),
            tokens: BTreeMap::new(),
            known: Vec::new(),
            asked: Vec::new(),
            life: Duration::from_hours(1),
            under_way: 0,
            most: 0,
            pause: Duration::ZERO,
            ahead: Duration::ZERO,
            conflicts: 0,
        }));
        let shared = Arc::clone(&state);
        let server = tokio::spawn(async move {
            loop {
                let (stream, _) = listener.accept().await.unwrap();
                let shared = Arc::clone(&shared);
                tokio::spawn(async move { answer(stream, &shared).await });
            }
        });
        Self {
            address,
            state,
            server,
        }
    }

    pub(super) fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Makes a token valid.
    pub(super) fn accept(&self, token: &str, subject: &str) {
        self.state.lock().tokens.insert(token.into(), subject.into());
    }

    /// Takes the signatures of an access key for right.
    pub(super) fn knows(&self, access_key: &str) {
        self.state.lock().known.push(access_key.into());
    }

    /// Makes keys from now on live this long.
    pub(super) fn keys_live(&self, life: Duration) {
        self.state.lock().life = life;
    }

    /// Makes answers from now on wait this long.
    pub(super) fn answer_after(&self, pause: Duration) {
        self.state.lock().pause = pause;
    }

    /// Puts the clock ahead.
    pub(super) fn put_ahead(&self, ahead: Duration) {
        self.state.lock().ahead = ahead;
    }

    /// Answers this number of requests with 409, as Ceph does where two ask for a new user at once.
    pub(super) fn conflict(&self, requests: usize) {
        self.state.lock().conflicts = requests;
    }

    /// The forms that were received.
    pub(super) fn asked(&self) -> Vec<BTreeMap<String, String>> {
        self.state.lock().asked.clone()
    }

    /// The most requests that it was answering at a time.
    pub(super) fn most_at_a_time(&self) -> usize {
        self.state.lock().most
    }

    /// Accepts no connections from now on.
    pub(super) fn stop(&self) {
        self.server.abort();
    }
}

/// Reads one request, answers it, and closes the connection.
async fn answer(mut stream: TcpStream, state: &Mutex<State>) {
    let mut received = Vec::new();
    let (signer, form) = loop {
        let mut piece = [0; 4096];
        let read = stream.read(&mut piece).await.unwrap_or_default();
        if read == 0 {
            return;
        }
        received.extend_from_slice(&piece[..read]);
        let text = String::from_utf8_lossy(&received).into_owned();
        let Some((head, body)) = text.split_once("\r\n\r\n") else {
            continue;
        };
        let length = head.to_ascii_lowercase();
        let length = length
            .split("content-length: ")
            .nth(1)
            .and_then(|rest| rest.lines().next());
        if body.len() >= length.map_or(0, |length| length.trim().parse().unwrap()) {
            let signer = head
                .split_once("Credential=")
                .and_then(|(_, rest)| rest.split_once('/'));
            break (
                signer.map(|(access_key, _)| access_key.to_owned()),
                body.to_owned(),
            );
        }
    };
    let pause = {
        let mut state = state.lock();
        state.under_way += 1;
        state.most = state.most.max(state.under_way);
        state.pause
    };
    tokio::time::sleep(pause).await;
    let (status, date, body) = state.lock().decide(signer, &form);
    let date = httpdate::fmt_http_date(date);
    let head = format!(
        "HTTP/1.1 {status}\r\nDate: {date}\r\nContent-Type: text/xml\r\nContent-Length: {}\r\nConnection: close\r\n\r\n",
        body.len()
    );
    state.lock().under_way -= 1;
    let _ = stream.write_all((head + &body).as_bytes()).await;
}

impl State {
    /// Returns a status, the time of the answer, and its body.
    fn decide(&mut self, signer: Option<String>, form: &str) -> (&'static str, SystemTime, String) {
        let form: BTreeMap<String, String> = form_urlencoded::parse(form.as_bytes()).into_owned().collect();
        let now = clock::utc_now() + self.ahead;
        let subject = self
            .tokens
            .get(form.get("WebIdentityToken").map_or("", String::as_str))
            .cloned();
        let is_known = signer.as_ref().is_some_and(|signer| self.known.contains(signer));
        let subject = subject.or_else(|| signer.filter(|_| is_known));
        let role = form.get("RoleArn").cloned().unwrap_or_default();
        let number = self.asked.len();
        self.asked.push(form);
        if self.conflicts > 0 {
            self.conflicts -= 1;
            return ("409 Conflict", now, String::new());
        }
        let Some(subject) = subject else {
            let body = "<ErrorResponse xmlns=\"https://sts.amazonaws.com/doc/2011-06-15/\"><Error><Type>Sender\
                        </Type><Code>InvalidIdentityToken</Code><Message>The token is not known here</Message>\
                        </Error></ErrorResponse>";
            return ("400 Bad Request", now, body.into());
        };
        let key = TemporaryKey {
            access_key: format!("ASIA{number}"),
            secret_key: format!("secret-of-{number}"),
            token: format!("session/token+of={number}"),
        };
        self.lake.add_user(&key.access_key, &key.secret_key);
        let expiration: time::OffsetDateTime = (now + self.life).into();
        let expiration = expiration
            .format(&time::format_description::well_known::Rfc3339)
            .unwrap();
        let body = format!(
            "<AssumeRoleWithWebIdentityResponse xmlns=\"https://sts.amazonaws.com/doc/2011-06-15/\">\
             <AssumeRoleWithWebIdentityResult><Credentials><AccessKeyId>{}</AccessKeyId><SecretAccessKey>{}\
             </SecretAccessKey><SessionToken>{}</SessionToken><Expiration>{expiration}</Expiration></Credentials>\
             <SubjectFromWebIdentityToken>{subject}</SubjectFromWebIdentityToken><AssumedRoleUser><Arn>{role}/s\
             </Arn></AssumedRoleUser></AssumeRoleWithWebIdentityResult></AssumeRoleWithWebIdentityResponse>",
            key.access_key, key.secret_key, key.token
        );
        ("200 OK", now, body)
    }
}
