//! The meaning of etcd's error messages for the requests that they answer. Pure.
//!
//! The gateway's status codes are too coarse (a full disk and too many requests are both 429), so that the
//! message decides. A message that is not known is treated as if there had been no answer.

use crate::engine::EngineError;

/// etcd did not do as it was asked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Refusal {
    /// The token of the user has expired, or the member does not know it. Nothing happened.
    Token,
    /// The answer is too large for etcd's own gateway.
    TooLarge,
    /// Nothing happened; another member, or a later moment, may help.
    NotNow(String),
    /// Nothing happened; neither helps. A transaction may have happened if the error is that etcd is full.
    Never(EngineError),
    /// Perhaps it happened, or will.
    Unsure(String),
}

/// Messages contain these.
const TOKEN: [&str; 2] = ["invalid auth token", "revision of auth store is old"];
/// etcd raises these before it gives a request to its log.
const NOT_NOW: [&str; 5] = [
    "etcdserver: no leader",
    "etcdserver: too many requests",
    "etcdserver: not capable",
    "etcdserver: unhealthy cluster",
    "raft proposal dropped",
];
const REFUSED: [&str; 12] = [
    "permission denied",
    "authentication failed",
    "authentication is not enabled",
    "user name is empty",
    "user name not found",
    "root user",
    "request is too large",
    "too many operations",
    "duplicate key",
    "future revision",
    "key is not provided",
    "etcdserver: invalid",
];

impl Refusal {
    /// Reads the message of an error.
    pub(super) fn from_message(message: &str) -> Self {
        let has = |texts: &[&str]| texts.iter().any(|text| message.contains(text));
        if has(&TOKEN) {
            Self::Token
        } else if has(&["received message larger than max"]) {
            Self::TooLarge
        } else if has(&["database space exceeded"]) {
            let full = "etcd has reached its quota (NOSPACE); compact, defragment, then disarm the alarm";
            Self::Never(EngineError::Full(full.into()))
        } else if has(&["revision has been compacted"]) {
            Self::Never(EngineError::Compacted)
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
                "etcdserver: mvcc: required revision has been compacted",
                never(EngineError::Compacted),
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
