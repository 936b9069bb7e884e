//! Health check of the lake: tests whether it answers, and whether it accepts the accounts that this node
//! signs with. Runs at start, and again while either is in doubt.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use shoal_base::causes;
use shoal_net::clock;
use shoal_net::endpoint::{Endpoint, LakeAccount, ProbeError};
use shoal_net::log_throttle::LogThrottle;
use shoal_net::pauses::Pauses;
use shoal_net::shutdown::Shutdown;
use shoal_s3::identity::{Caller, Identities};

/// Maximum number of accounts checked; any other invalid account shows with the first request that it signs.
const ACCOUNTS_MAX: usize = 64;

/// Pauses before an unresponsive lake is asked again. They double from the first to the second value.
const PAUSE_MIN: Duration = Duration::from_secs(1);
const PAUSE_MAX: Duration = Duration::from_secs(15);

/// Interval at which accounts that are refused or in doubt are checked.
const RECHECK_PAUSE: Duration = Duration::from_mins(1);

/// Interval at which the results of clients' requests are examined for doubt.
const DOUBT_POLL: Duration = Duration::from_secs(1);

/// Interval at which an ongoing outage is logged again.
const LOG_AGAIN: Duration = Duration::from_mins(1);

/// Checks the lake while the node runs.
pub struct LakeHealthCheck {
    lake: Arc<Endpoint>,
    identities: Arc<Identities>,
    /// Set while the lake does not answer: the pauses before the next requests, and the lines about it.
    outage: Option<(Pauses, LogThrottle)>,
}

impl LakeHealthCheck {
    /// Creates a check that has not run yet.
    pub fn new(lake: Arc<Endpoint>, identities: Arc<Identities>) -> Self {
        Self {
            lake,
            identities,
            outage: None,
        }
    }

    /// Checks immediately, and then whenever there is doubt, until `stopping` begins.
    pub async fn run(mut self, stopping: Shutdown) {
        let checking = async {
            loop {
                self.ask().await;
                self.wait_for_doubt().await;
            }
        };
        stopping.limits(checking).await;
    }

    async fn ask(&mut self) {
        let accounts = self.accounts();
        for account in accounts.iter().take(ACCOUNTS_MAX) {
            if let Err(error) = self.lake.probe(account).await {
                self.probe_failed(&error);
                return;
            }
        }
        self.lake.health.forget_all_but(|owner, access_key| {
            let mut signers = accounts.iter().filter_map(LakeAccount::signer);
            signers.any(|(signer, whose)| whose == owner && signer.access_key == access_key)
        });
        if self.outage.take().is_some() {
            tracing::info!(endpoint = self.lake.url(), "the lake answers");
        }
    }

    /// Returns the accounts to check. The account for identities without their own comes first, because most
    /// requests use it.
    fn accounts(&self) -> Vec<LakeAccount> {
        let own = self.lake.credentials.own();
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
        let begin = || (Pauses::new(PAUSE_MIN, PAUSE_MAX), LogThrottle::every(LOG_AGAIN));
        let (_, lines) = self.outage.get_or_insert_with(begin);
        if lines.admit(clock::instant()).is_some() {
            tracing::warn!(
                endpoint = self.lake.url(),
                error = causes::line(&failure.error),
                hint = failure.hint(),
                "the lake does not answer this node",
            );
        }
    }

    async fn wait_for_doubt(&mut self) {
        if let Some((pauses, _)) = &mut self.outage {
            return pauses.wait().await;
        }
        let asked = clock::runtime_instant();
        let health = &self.lake.health;
        loop {
            tokio::time::sleep(DOUBT_POLL).await;
            let is_time = clock::runtime_instant().saturating_duration_since(asked) >= RECHECK_PAUSE;
            let is_doubtful = || health.take_doubt() || !health.refused_accounts().is_empty();
            if health.is_silent() || is_time && is_doubtful() {
                return;
            }
        }
    }
}
