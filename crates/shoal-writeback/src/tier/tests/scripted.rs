//! A server that answers each request by a script and records the requests.

use std::net::SocketAddr;
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;

/// A request that the server received.
#[derive(Clone, Debug)]
pub(crate) struct Asked {
    pub(crate) method: String,
    pub(crate) target: String,
    head: String,
    body: Vec<u8>,
}

impl Asked {
    /// Returns the body without the signatures of its chunks.
    pub(crate) fn data(&self) -> Vec<u8> {
        if self.header("x-amz-decoded-content-length").is_none() {
            return self.body.clone();
        }
        let (mut data, mut rest) = (Vec::new(), &*self.body);
        while !rest.is_empty() {
            let end = rest.windows(2).position(|two| two == b"\r\n").unwrap();
            let head = std::str::from_utf8(&rest[..end]).unwrap();
            let length = head.split(';').next().unwrap();
            let length = usize::from_str_radix(length, 16).unwrap();
            data.extend_from_slice(&rest[end + 2..][..length]);
            rest = &rest[end + 2 + length + 2..];
        }
        data
    }

    /// Returns the target without its query.
    pub(crate) fn path(&self) -> &str {
        self.target.split('?').next().unwrap_or_default()
    }

    /// Returns the value of a header.
    pub(crate) fn header(&self, name: &str) -> Option<String> {
        self.head.lines().find_map(|line| {
            let (found, value) = line.split_once(": ")?;
            found.eq_ignore_ascii_case(name).then(|| value.to_owned())
        })
    }
}

/// A response. The connection is closed after it.
#[derive(Clone, Debug)]
pub(crate) struct Answer {
    status: u16,
    headers: Vec<(String, String)>,
    body: Vec<u8>,
}

impl Answer {
    pub(crate) fn new(status: u16) -> Self {
        Self {
            status,
            headers: Vec::new(),
            body: Vec::new(),
        }
    }

    pub(crate) fn status(mut self, status: u16) -> Self {
        self.status = status;
        self
    }

    /// Adds a header. Without a `content-length`, that of the body is sent.
    pub(crate) fn header(mut self, name: &str, value: &str) -> Self {
        self.headers.push((name.into(), value.into()));
        self
    }

    pub(crate) fn body(mut self, body: impl Into<Vec<u8>>) -> Self {
        self.body = body.into();
        self
    }

    fn to_bytes(&self) -> Vec<u8> {
        let mut lines = vec![
            format!("HTTP/1.1 {} Scripted", self.status),
            "connection: close".into(),
        ];
        lines.extend(
            self.headers
                .iter()
                .map(|(name, value)| format!("{name}: {value}")),
        );
        let has_length = self.headers.iter().any(|(name, _)| name == "content-length");
        if !has_length && self.status != 204 {
            lines.push(format!("content-length: {}", self.body.len()));
        }
        [lines.join("\r\n").as_bytes(), b"\r\n\r\n", &self.body].concat()
    }
}

type Script = dyn Fn(&Asked) -> Answer + Send + Sync;

/// The server, which stops when this is dropped.
pub(crate) struct ScriptedStore {
    address: SocketAddr,
    asked: Arc<Mutex<Vec<Asked>>>,
    server: JoinHandle<()>,
}

impl ScriptedStore {
    pub(crate) async fn start(script: impl Fn(&Asked) -> Answer + Send + Sync + 'static) -> Self {
        Self::serve(Arc::new(script), true).await
    }

    /// Starts a server that answers before it reads a body.
    pub(crate) async fn impatient(script: impl Fn(&Asked) -> Answer + Send + Sync + 'static) -> Self {
        Self::serve(Arc::new(script), false).await
    }

    async fn serve(script: Arc<Script>, reads_bodies: bool) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let asked = Arc::<Mutex<Vec<Asked>>>::default();
        let server = {
            let asked = Arc::clone(&asked);
            tokio::spawn(async move {
                while let Ok((socket, _)) = listener.accept().await {
                    tokio::spawn(serve_one(
                        socket,
                        Arc::clone(&script),
                        Arc::clone(&asked),
                        reads_bodies,
                    ));
                }
            })
        };
        Self {
            address,
            asked,
            server,
        }
    }

    pub(crate) fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Returns the requests received so far.
    pub(crate) fn asked(&self) -> Vec<Asked> {
        self.asked.lock().clone()
    }
}

impl Drop for ScriptedStore {
    fn drop(&mut self) {
        self.server.abort();
    }
}

/// Answers one request, unless it is incomplete.
async fn serve_one(
    mut socket: TcpStream,
    script: Arc<Script>,
    asked: Arc<Mutex<Vec<Asked>>>,
    reads_bodies: bool,
) -> Option<()> {
    let mut received = Vec::new();
    let end = loop {
        if let Some(at) = received.windows(4).position(|four| four == b"\r\n\r\n") {
            break at;
        }
        (socket.read_buf(&mut received).await.ok()? > 0).then_some(())?;
    };
    let head = String::from_utf8(received[..end].into()).ok()?;
    let mut words = head.split(' ').map(ToOwned::to_owned);
    let (method, target) = (words.next()?, words.next()?);
    let mut question = Asked {
        method,
        target,
        body: received.split_off(end + 4),
        head,
    };
    let length = question.header("content-length");
    let length = length.map_or(0, |length| length.parse().unwrap());
    while reads_bodies && question.body.len() < length {
        (socket.read_buf(&mut question.body).await.ok()? > 0).then_some(())?;
    }
    let answer = script(&question).to_bytes();
    asked.lock().push(question);
    socket.write_all(&answer).await.ok()
}
