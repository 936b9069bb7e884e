//! Whether the lake answers, and accepts the accounts this node signs with: asked at start, and again while there is doubt.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use crate::clock;
use crate::endpoint::{Endpoint, LakeAccount, Unheard, causes};
use crate::s3::identity::{Caller, Identities};
use crate::shutdown::Shutdown;

/// So many accounts are asked about; one that is wrong beyond them shows itself with the first request that it signs.
const ACCOUNTS_MAX: usize = 64;

/// A lake that is silent is asked again after this long, then after twice as long, up to the longest pause.
const PAUSE_MIN: Duration = Duration::from_secs(1);
const PAUSE_MAX: Duration = Duration::from_secs(15);

/// Accounts that are refused or in doubt are asked about this often.
const DOUBT_PAUSE: Duration = Duration::from_mins(1);

/// How often requests of clients are looked at for doubt.
const GLANCE: Duration = Duration::from_secs(1);

/// The same trouble is told this often.
const TELL_AGAIN: Duration = Duration::from_mins(1);

/// Watches over the lake for as long as the node runs.
pub struct LakeWatch {
    lake: Arc<Endpoint>,
    identities: Arc<Identities>,
    /// While the lake does not answer.
    silence: Option<Silence>,
}

#[derive(Clone, Copy, Debug)]
struct Silence {
    /// Until the lake is asked again.
    pause: Duration,
    /// When the log said so last.
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

    /// Asks at once, and then while there is doubt, until `stopping` begins.
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
            if let Err(unheard) = self.lake.ask(account).await {
                self.unheard(&unheard);
                return;
            }
        }
        self.lake.standing().forget_all_but(|owner, access_key| {
            let mut signers = accounts.iter().filter_map(LakeAccount::signer);
            signers.any(|(signer, whose)| whose == owner && signer.access_key == access_key)
        });
        if self.silence.take().is_some() {
            tracing::info!(endpoint = self.lake.url(), "the lake answers");
        }
    }

    /// The account of identities that bring none comes first: most depends on it.
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

    fn unheard(&mut self, unheard: &Unheard) {
        let now = clock::runtime_instant();
        let is_due = self
            .silence
            .is_none_or(|silence| now.saturating_duration_since(silence.told) >= TELL_AGAIN);
        if is_due {
            tracing::warn!(
                endpoint = self.lake.url(),
                error = causes(&unheard.error),
                hint = unheard.hint(),
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
        let standing = self.lake.standing();
        loop {
            tokio::time::sleep(GLANCE).await;
            let is_time = clock::runtime_instant().saturating_duration_since(asked) >= DOUBT_PAUSE;
            let is_doubtful = || standing.take_doubt() || !standing.refused_accounts().is_empty();
            if standing.is_silent() || is_time && is_doubtful() {
                return;
            }
        }
    }
}
