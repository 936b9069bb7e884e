//! The health of an endpoint as this node sees it: if it answers at all, and which accounts it rejects.
//!
//! Updated by every request; read by the watch over the lake, the admin pages and the metrics.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use super::Owner;
use super::refusal::AccountRefusal;
use crate::metrics::Counts;
use crate::time::clock;

/// The same refusal is logged at most once within this time.
const QUIET: Duration = Duration::from_mins(1);

/// Maximum number of accounts remembered as refused. Identities are configured, so there are rarely more.
const ACCOUNTS_MAX: usize = 1_024;

/// The recent behaviour of the endpoint.
#[derive(Debug, Default)]
pub struct EndpointHealth {
    has_answered: AtomicBool,
    /// True once it has accepted an account that this node provides for identities without one.
    has_accepted_own: AtomicBool,
    /// True once it has accepted any account.
    has_accepted_any: AtomicBool,
    /// True if the last request got no response.
    is_silent: AtomicBool,
    /// True if a response without a body leaves it open if an account is refused.
    is_doubtful: AtomicBool,
    /// True if `refused` is not empty: saves most responses from taking its lock.
    any_refused: AtomicBool,
    refused: Mutex<BTreeMap<(Owner, String), Refused>>,
    /// The number of requests that were refused for the account that signed them.
    pub refusals: Counts<AccountRefusal>,
}

/// An account that the endpoint rejects.
#[derive(Clone, Copy, Debug)]
struct Refused {
    reason: AccountRefusal,
    logged: Instant,
}

impl EndpointHealth {
    /// Records that a request was answered, whatever the response.
    pub(in crate::endpoint) fn answered(&self) {
        self.has_answered.store(true, Ordering::Relaxed);
        self.is_silent.store(false, Ordering::Relaxed);
    }

    /// Records that a request got no response.
    pub(in crate::endpoint) fn unanswered(&self) {
        self.is_silent.store(true, Ordering::Relaxed);
    }

    /// Records that the endpoint recognised this account, which signed a request.
    pub(in crate::endpoint) fn accepted(&self, owner: Owner, access_key: &str) {
        self.has_accepted_any.store(true, Ordering::Relaxed);
        if matches!(owner, Owner::Lake | Owner::Chain) {
            self.has_accepted_own.store(true, Ordering::Relaxed);
        }
        if self.any_refused.load(Ordering::Relaxed) {
            let mut refused = self.refused.lock();
            refused.remove(&(owner, access_key.to_owned()));
            self.any_refused.store(!refused.is_empty(), Ordering::Relaxed);
        }
    }

    /// Records a response without a body that may refuse this account or only its request.
    pub(in crate::endpoint) fn doubted(&self) {
        self.is_doubtful.store(true, Ordering::Relaxed);
    }

    /// Records that the account was refused. Returns true if it is time to log that.
    pub(in crate::endpoint) fn refused(
        &self,
        owner: Owner,
        access_key: &str,
        reason: AccountRefusal,
    ) -> bool {
        self.refusals.count(reason);
        let now = clock::instant();
        let mut refused = self.refused.lock();
        if refused.len() >= ACCOUNTS_MAX {
            refused.clear();
        }
        self.any_refused.store(true, Ordering::Relaxed);
        let account = (owner, access_key.to_owned());
        let known = refused.get(&account).copied();
        let is_news = known.is_none_or(|known| {
            known.reason != reason || now.saturating_duration_since(known.logged) >= QUIET
        });
        let logged = known.filter(|_| !is_news).map_or(now, |known| known.logged);
        refused.insert(account, Refused { reason, logged });
        is_news
    }

    /// Returns the reason why this account is known to be refused, if it is.
    pub(in crate::endpoint) fn refusal_of(&self, owner: Owner, access_key: &str) -> Option<AccountRefusal> {
        if !self.any_refused.load(Ordering::Relaxed) {
            return None;
        }
        let refused = self.refused.lock();
        refused
            .get(&(owner, access_key.to_owned()))
            .map(|refused| refused.reason)
    }

    /// Returns true if the endpoint has ever answered.
    pub fn has_answered(&self) -> bool {
        self.has_answered.load(Ordering::Relaxed)
    }

    /// Returns true if the endpoint has ever accepted the account for identities without one.
    pub fn has_accepted_own(&self) -> bool {
        self.has_accepted_own.load(Ordering::Relaxed)
    }

    /// Returns true if the endpoint has ever accepted an account, either the node's or an identity's.
    pub fn has_accepted_any(&self) -> bool {
        self.has_accepted_any.load(Ordering::Relaxed)
    }

    /// Returns true if the last request got no response.
    pub fn is_silent(&self) -> bool {
        self.is_silent.load(Ordering::Relaxed)
    }

    /// Returns true if the accounts should be checked. Clears the doubt, so a second call returns `false`.
    pub fn take_doubt(&self) -> bool {
        self.is_doubtful.swap(false, Ordering::Relaxed)
    }

    /// Forgets the refusals of accounts that no longer sign: removed identities and renewed credentials.
    pub fn forget_all_but(&self, signs: impl Fn(Owner, &str) -> bool) {
        let mut refused = self.refused.lock();
        refused.retain(|(owner, access_key), _| signs(*owner, access_key));
        self.any_refused.store(!refused.is_empty(), Ordering::Relaxed);
    }

    /// Returns the accounts that the endpoint is known to reject, described for operators, and the reasons.
    pub fn refused_accounts(&self) -> Vec<(String, AccountRefusal)> {
        let refused = self.refused.lock();
        let accounts = refused.iter();
        accounts
            .map(|((owner, access_key), refused)| (owner.describe(access_key), refused.reason))
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::{AccountRefusal, EndpointHealth, Owner};

    #[test]
    fn a_refusal_is_news_once_and_counted_each_time() {
        let health = EndpointHealth::default();
        assert!(health.refused(Owner::Lake, "AK", AccountRefusal::WrongSecret));
        assert!(!health.refused(Owner::Lake, "AK", AccountRefusal::WrongSecret));
        assert!(
            health.refused(Owner::Lake, "AK", AccountRefusal::Clock),
            "another reason"
        );
        assert!(
            health.refused(Owner::Identity, "AK", AccountRefusal::Clock),
            "another account"
        );
        let counted = AccountRefusal::ALL.map(|reason| health.refusals.get(reason));
        assert_eq!(counted, [0, 2, 2, 0, 0]);
    }

    #[test]
    fn an_account_is_refused_until_it_is_accepted() {
        let health = EndpointHealth::default();
        health.refused(Owner::Lake, "AK", AccountRefusal::UnknownKey);
        assert_eq!(
            health.refusal_of(Owner::Lake, "AK"),
            Some(AccountRefusal::UnknownKey)
        );
        assert!(!health.has_accepted_any());
        health.accepted(Owner::Client, "other");
        assert!(health.has_accepted_any() && !health.has_accepted_own());
        health.accepted(Owner::Lake, "other");
        assert!(health.has_accepted_own());
        assert_eq!(health.refused_accounts().len(), 1);
        health.accepted(Owner::Lake, "AK");
        assert_eq!(health.refusal_of(Owner::Lake, "AK"), None);
        assert!(health.refused_accounts().is_empty());
    }

    #[test]
    fn an_account_that_signs_no_longer_is_no_trouble_any_more() {
        let health = EndpointHealth::default();
        health.refused(Owner::Chain, "renewed", AccountRefusal::Expired);
        health.refused(Owner::Identity, "AK", AccountRefusal::WrongSecret);
        health.forget_all_but(|owner, access_key| (owner, access_key) == (Owner::Identity, "AK"));
        let left = health.refused_accounts();
        assert_eq!(left.len(), 1);
        assert_eq!(left[0].0, "[[identity]] lake_access_key AK");
    }

    #[test]
    fn it_is_silent_until_it_answers() {
        let health = EndpointHealth::default();
        assert!(!health.has_answered() && !health.is_silent());
        health.unanswered();
        assert!(!health.has_answered() && health.is_silent());
        health.answered();
        assert!(health.has_answered() && !health.is_silent());
    }
}
