//! The reasons why a member of etcd did not carry a request out, and the meaning of its error messages. Pure.
//!
//! The gateway's status codes are too coarse (a full disk and too many requests are both 429), so the message
//! decides. An unknown message is treated like a lost answer.

use crate::engine::EngineError;

/// The reason why a member did not carry a request out, as far as is known.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Refusal {
    /// The user's token has expired or is unknown to the member. Nothing changed.
    Token,
    /// The member's certificate is not trusted, or it does not accept this node's.
    Untrusted(String),
    /// The answer is too large for etcd's own gateway, or for this node.
    TooLarge,
    /// Nothing changed, perhaps because the request was not sent; another member or a later retry may
    /// succeed.
    NotNow(String),
    /// Nothing changed, and a retry does not help. Exception: if etcd is full, a transaction may have been
    /// applied.
    Never(EngineError),
    /// The request may have been or may yet be applied.
    Unsure(String),
}

/// Substrings of messages.
const TOKEN: [&str; 2] = ["invalid auth token", "revision of auth store is old"];
/// etcd returns these before it proposes a request.
const NOT_NOW: [&str; 5] = [
    "etcdserver: no leader",
    "etcdserver: too many requests",
    "etcdserver: not capable",
    "etcdserver: unhealthy cluster",
    "raft proposal dropped",
];
const REFUSED: [&str; 11] = [
    "permission denied",
    "authentication failed",
    "authentication is not enabled",
    "user name is empty",
    "user name not found",
    "root user",
    "request is too large",
    "too many operations",
    "duplicate key",
    "key is not provided",
    "etcdserver: invalid",
];

impl Refusal {
    /// Classifies an error by its message.
    pub(super) fn from_message(message: &str) -> Self {
        let has = |texts: &[&str]| texts.iter().any(|text| message.contains(text));
        if has(&TOKEN) {
            Self::Token
        } else if has(&["received message larger than max"]) {
            Self::TooLarge
        } else if has(&["database space exceeded"]) {
            let full = "etcd has reached its quota (NOSPACE); compact, defragment, then disarm the alarm";
            Self::Never(EngineError::Full(full.into()))
        } else if has(&["lease not found"]) {
            Self::Never(EngineError::SessionEnded)
        } else if has(&NOT_NOW) {
            Self::NotNow(message.to_owned())
        } else if has(&REFUSED) {
            Self::Never(EngineError::Refused(message.to_owned()))
        } else {
            Self::Unsure(message.to_owned())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_that_may_come_after_the_proposal_leaves_the_outcome_open() {
        for message in [
            "etcdserver: request timed out",
            "etcdserver: request timed out, possibly due to previous leader failure",
            "etcdserver: request timed out, possibly due to connection lost",
            "etcdserver: leader changed",
            "etcdserver: server stopped",
            "context deadline exceeded",
            "transport is closing",
            "an error of a later version",
        ] {
            assert_eq!(Refusal::from_message(message), Refusal::Unsure(message.into()));
        }
    }

    #[test]
    fn each_refusal_has_its_meaning() {
        let never = |error| Refusal::Never(error);
        let cases = [
            ("etcdserver: invalid auth token", Refusal::Token),
            ("etcdserver: revision of auth store is old", Refusal::Token),
            (
                "etcdserver: no leader",
                Refusal::NotNow("etcdserver: no leader".into()),
            ),
            (
                "etcdserver: requested lease not found",
                never(EngineError::SessionEnded),
            ),
            (
                "etcdserver: permission denied",
                never(EngineError::Refused("etcdserver: permission denied".into())),
            ),
            (
                "grpc: received message larger than max (5 vs. 4)",
                Refusal::TooLarge,
            ),
        ];
        for (message, expected) in cases {
            assert_eq!(Refusal::from_message(message), expected);
        }
        let full = Refusal::from_message("etcdserver: mvcc: database space exceeded");
        assert!(matches!(full, Refusal::Never(EngineError::Full(_))));
    }
}
