//! Watches whether the lake answers and accepts the accounts that this node signs with. It asks at start, and
//! again while there is doubt.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use crate::clock;
use crate::endpoint::{Endpoint, LakeAccount, ProbeError, causes};
use crate::s3::identity::{Caller, Identities};
use crate::shutdown::Shutdown;

/// The number of accounts that are checked; a wrong account beyond them shows with the first request that it
/// signs.
const ACCOUNTS_MAX: usize = 64;

/// A silent lake is asked again after this pause, which doubles up to the longest one.
const PAUSE_MIN: Duration = Duration::from_secs(1);
const PAUSE_MAX: Duration = Duration::from_secs(15);

/// How often accounts that are refused or in doubt are checked.
const DOUBT_PAUSE: Duration = Duration::from_mins(1);

/// How often the results of clients' requests are checked for doubt.
const GLANCE: Duration = Duration::from_secs(1);

/// How often the log repeats the same trouble.
const TELL_AGAIN: Duration = Duration::from_mins(1);

/// Watches the lake for as long as the node runs.
pub struct LakeWatch {
    lake: Arc<Endpoint>,
    identities: Arc<Identities>,
    /// Present while the lake does not answer.
    silence: Option<Silence>,
}

#[derive(Clone, Copy, Debug)]
struct Silence {
    /// How long to wait before the lake is asked again.
    pause: Duration,
    /// When the log last said so.
    told: Instant,
}

impl LakeWatch {
    /// A watch that has not asked yet.
    pub fn new(lake: Arc<Endpoint>, identities: Arc<Identities>) -> Self {
        Self {
            lake,
            identities,
            silence: None,
        }
    }

    /// Asks at once, and then whenever there is doubt, until `stopping` begins.
    pub async fn run(mut self, stopping: Shutdown) {
        let watching = async {
            loop {
                self.ask().await;
                self.wait_for_doubt().await;
            }
        };
        tokio::select! {
            () = watching => {}
            () = stopping.begun() => {}
        }
    }

    async fn ask(&mut self) {
        let accounts = self.accounts();
        for account in accounts.iter().take(ACCOUNTS_MAX) {
            if let Err(error) = self.lake.probe(account).await {
                self.probe_failed(&error);
                return;
            }
        }
        self.lake.health().forget_all_but(|owner, access_key| {
            let mut signers = accounts.iter().filter_map(LakeAccount::signer);
            signers.any(|(signer, whose)| whose == owner && signer.access_key == access_key)
        });
        if self.silence.take().is_some() {
            tracing::info!(endpoint = self.lake.url(), "the lake answers");
        }
    }

    /// The account for identities that bring none comes first, because most depends on it.
    fn accounts(&self) -> Vec<LakeAccount> {
        let own = self.lake.credentials().own();
        let of_identities = self
            .identities
            .all()
            .into_iter()
            .map(|identity| self.lake.account_for(&Caller::Identity(identity)));
        let mut seen = HashSet::new();
        let mut accounts: Vec<LakeAccount> = own
            .into_iter()
            .chain(of_identities)
            .filter(|account| {
                let signer = account.signer().map(|(signer, _)| signer.access_key.clone());
                seen.insert(signer)
            })
            .collect();
        if accounts.is_empty() {
            accounts.push(LakeAccount::Anonymous);
        }
        accounts
    }

    fn probe_failed(&mut self, failure: &ProbeError) {
        let now = clock::runtime_instant();
        let is_due = self
            .silence
            .is_none_or(|silence| now.saturating_duration_since(silence.told) >= TELL_AGAIN);
        if is_due {
            tracing::warn!(
                endpoint = self.lake.url(),
                error = causes(&failure.error),
                hint = failure.hint(),
                "the lake does not answer this node",
            );
        }
        self.silence = Some(match self.silence {
            None => Silence {
                pause: PAUSE_MIN,
                told: now,
            },
            Some(silence) => Silence {
                pause: (silence.pause * 2).min(PAUSE_MAX),
                told: if is_due { now } else { silence.told },
            },
        });
    }

    async fn wait_for_doubt(&self) {
        if let Some(silence) = self.silence {
            return tokio::time::sleep(silence.pause).await;
        }
        let asked = clock::runtime_instant();
        let health = self.lake.health();
        loop {
            tokio::time::sleep(GLANCE).await;
            let is_time = clock::runtime_instant().saturating_duration_since(asked) >= DOUBT_PAUSE;
            let is_doubtful = || health.take_doubt() || !health.refused_accounts().is_empty();
            if health.is_silent() || is_time && is_doubtful() {
                return;
            }
        }
    }
}
