//! The members of etcd, as one server: a request goes to the member that answered last, and to the others in
//! turn if that one fails.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use tokio::time::{Instant, sleep_until};

use super::member::{Answer, Member, Post, Token};
use super::messages::{AuthenticateResponse, error_message};
use super::refusal::Refusal;
use super::settings::User;
use crate::engine::EngineError;

/// Time between two rounds over all members.
const PAUSE: Duration = Duration::from_millis(50);

/// The members.
pub(super) struct Members {
    all: Vec<Member>,
    /// The member that answered last.
    preferred: AtomicUsize,
    timeout: Duration,
    user: Option<User>,
}

/// The consequence of a lost answer: a request may be sent again, or never.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Repeat {
    Safe,
    Never,
}

/// A request failed at all members that were asked.
pub(super) enum Failed {
    /// The answer is too large.
    TooLarge,
    /// Any other reason.
    Error(EngineError),
}

impl Members {
    /// Groups members, which are asked with the rights of `user`, each request for at most `timeout`.
    pub(super) fn new(all: Vec<Member>, timeout: Duration, user: Option<User>) -> Self {
        Self {
            all,
            preferred: AtomicUsize::new(0),
            timeout,
            user,
        }
    }

    /// Returns their addresses, for messages.
    pub(super) fn names(&self) -> Vec<&str> {
        self.all.iter().map(Member::name).collect()
    }

    /// Sends a request that may be repeated. Returns its answer.
    pub(super) async fn call<A: DeserializeOwned>(
        &self,
        path: &'static str,
        request: &Value,
    ) -> Result<A, EngineError> {
        let answered = self.ask(path, request, Repeat::Safe).await;
        answered.map_err(Failed::into_error)
    }

    /// Sends a request to the members in turn, starting with the one that answered last, until one answers or
    /// the time is over.
    pub(super) async fn ask<A: DeserializeOwned>(
        &self,
        path: &'static str,
        request: &Value,
        repeat: Repeat,
    ) -> Result<A, Failed> {
        let body = Bytes::from(request.to_string());
        let deadline = Instant::now() + self.timeout;
        let mut error = EngineError::Unavailable("no member was asked".into());
        loop {
            let mut untrusted = 0;
            for _ in 0..self.all.len() {
                let preferred = self.preferred.load(Ordering::Relaxed);
                let member = &self.all[preferred];
                let of_member = |reason: &str| format!("{}: {reason}", member.name());
                let unavailable = |reason: &str| EngineError::Unavailable(of_member(reason));
                error = match self.ask_member(member, path, &body, repeat, deadline).await {
                    Ok(answer) => return Ok(answer),
                    Err(Refusal::TooLarge) => return Err(Failed::TooLarge),
                    Err(Refusal::Never(error)) => return Err(Failed::Error(error)),
                    Err(Refusal::Unsure(reason)) if repeat == Repeat::Never => {
                        self.leave(preferred);
                        return Err(Failed::Error(EngineError::Unknown(of_member(&reason))));
                    }
                    Err(Refusal::Unsure(reason) | Refusal::NotNow(reason)) => unavailable(&reason),
                    Err(Refusal::Token) => unavailable("it does not accept its own token"),
                    Err(Refusal::Untrusted(reason)) => {
                        untrusted += 1;
                        EngineError::Refused(of_member(&reason))
                    }
                };
                self.leave(preferred);
                if Instant::now() >= deadline {
                    return Err(Failed::Error(error));
                }
            }
            if untrusted == self.all.len() {
                return Err(Failed::Error(error));
            }
            sleep_until((Instant::now() + PAUSE).min(deadline)).await;
        }
    }

    /// Starts the next request at another member, unless another request has changed it already.
    fn leave(&self, member: usize) {
        let next = (member + 1) % self.all.len();
        // Another request may have found a better one.
        let _ = self
            .preferred
            .compare_exchange(member, next, Ordering::Relaxed, Ordering::Relaxed);
    }

    /// Sends a request to one member, with a new token if it rejects the old one.
    async fn ask_member<A: DeserializeOwned>(
        &self,
        member: &Member,
        path: &'static str,
        body: &Bytes,
        repeat: Repeat,
        deadline: Instant,
    ) -> Result<A, Refusal> {
        // Each member gets a share of the time, unless no other member can answer.
        let share = (Instant::now() + self.timeout / (self.all.len() as u32 + 1)).min(deadline);
        let answer_by = if repeat == Repeat::Safe { share } else { deadline };
        let mut is_retry = false;
        loop {
            let token = self.token(member, share).await?;
            let post = Post {
                path,
                body: body.clone(),
                token: token.as_deref(),
                connect_by: share,
                answer_by,
            };
            match ask_once(member, post).await {
                Err(Refusal::Token) if !is_retry => forget(member, token.as_ref()).await,
                answered => return answered,
            }
            is_retry = true;
        }
    }

    /// Returns the user's token at a member, if a user is configured.
    async fn token(&self, member: &Member, by: Instant) -> Result<Option<Arc<Token>>, Refusal> {
        let Some(User { name, password, .. }) = &self.user else {
            return Ok(None);
        };
        let mut token = member.token.lock().await;
        if let Some(token) = &*token {
            return Ok(Some(Arc::clone(token)));
        }
        let request = json!({ "name": name, "password": password.expose() });
        let post = Post {
            path: "/v3/auth/authenticate",
            body: request.to_string().into(),
            token: None,
            connect_by: by,
            answer_by: by,
        };
        let answered = ask_once(member, post).await;
        let answer: AuthenticateResponse = answered.map_err(|refusal| match refusal {
            Refusal::Never(EngineError::Refused(reason)) => {
                Refusal::Never(EngineError::Refused(format!("user {name}: {reason}")))
            }
            // A lost answer is harmless: the request that needs the token has not been sent.
            Refusal::Unsure(reason) => Refusal::NotNow(reason),
            // No token is long: another server stands at this address.
            Refusal::TooLarge => Refusal::NotNow("its answer is too large".into()),
            other => other,
        })?;
        Ok(Some(Arc::clone(token.insert(Arc::new(Token::new(answer.token))))))
    }
}

impl Failed {
    pub(super) fn into_error(self) -> EngineError {
        match self {
            Self::Error(error) => error,
            Self::TooLarge => EngineError::Refused("a value is larger than what etcd's gateway gives".into()),
        }
    }
}

/// Sends a request to a member once, and interprets its answer. A stream reports errors in its answers.
async fn ask_once<A: DeserializeOwned>(member: &Member, post: Post<'_>) -> Result<A, Refusal> {
    let Answer { status, body } = member.post(post).await?;
    if status.is_redirection() {
        return Err(Refusal::Untrusted("it answers with a redirect".into()));
    }
    let refusal = || error_message(&body).map(|message| Refusal::from_message(&message));
    if !status.is_success() {
        return Err(refusal().unwrap_or_else(|| Refusal::Unsure("its answer cannot be read".into())));
    }
    serde_json::from_slice(&body).map_err(|error| match refusal() {
        Some(refusal @ Refusal::Never(_)) => refusal,
        Some(refusal) => Refusal::Unsure(format!("{refusal:?}")),
        None => Refusal::Unsure(format!("its answer cannot be read: {error}")),
    })
}

/// Drops a token, unless another request has replaced it.
async fn forget(member: &Member, token: Option<&Arc<Token>>) {
    let mut known = member.token.lock().await;
    if let (Some(old), Some(now)) = (token, &*known)
        && Arc::ptr_eq(old, now)
    {
        *known = None;
    }
}
