//! Temporary keys: what STS (AWS's Security Token Service, or that of another lake) gives a client for a
//! time.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;
use std::time::SystemTime;

use arc_swap::ArcSwapOption;
use shoal_base::secret::Secret;

use super::identity::{Account, Identity, Known};

/// Maximum number of temporary keys, and of bytes of their tokens, whose length STS alone decides.
pub const TEMPORARY_KEYS_MAX: usize = 32 << 10;
const TOKEN_BYTES_MAX: usize = 64 << 20;

/// Maximum number of payers; the keys beyond share one more.
const PAYERS_MAX: usize = 1024;

/// Ends the role in the name of a principal. No role session name has it.
const MARK: char = '#';

/// A key pair and a session token that STS gave a client for a time.
#[derive(Clone, Debug, PartialEq)]
pub struct TemporaryKey {
    /// The key pair and the token, with which the client signs here, and this node at the lake.
    pub account: Arc<Account>,
    /// The key is refused from this time on, by the clock of this node.
    pub expires: SystemTime,
    /// Whom STS gave the key.
    pub principal: Arc<Principal>,
}

/// Whom STS gives temporary keys. All keys of one principal may do the same, so work that outlives one of
/// them goes on with the next.
pub struct Principal {
    name: Box<str>,
    /// The key of the principal that lives longest, and its end.
    longest: ArcSwapOption<(Arc<Account>, SystemTime)>,
}

impl Principal {
    /// Creates a principal with the name of an identity, or with that of a [role](Self::of_role).
    pub fn new(name: impl Into<Box<str>>) -> Self {
        Self {
            name: name.into(),
            longest: ArcSwapOption::empty(),
        }
    }

    /// Creates a principal that is named by its role (an ARN, or `""` if the token alone decides), the
    /// subject of its token, and a digest of everything else that STS considers.
    pub fn of_role(role: &str, subject: &str, digest: u64) -> Self {
        let subject = subject.replace(MARK, "_");
        Self::new(format!("{role}{MARK}{subject}{MARK}{digest:016x}"))
    }

    /// Returns its name, which is the same for all of its keys.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Notes one of its keys.
    fn add(&self, account: &Arc<Account>, expires: SystemTime) {
        let longest = self.longest.load();
        if longest.as_ref().is_none_or(|longest| longest.1 <= expires) {
            self.longest.store(Some(Arc::new((Arc::clone(account), expires))));
        }
    }
}

impl PartialEq for Principal {
    fn eq(&self, other: &Self) -> bool {
        self.name == other.name
    }
}

impl fmt::Debug for Principal {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.name.fmt(formatter)
    }
}

impl TemporaryKey {
    /// Returns the account that signs at `now` what was begun with this key: its own until it expires, then
    /// that of its principal's next key, if there is one.
    pub fn account_at(&self, now: SystemTime) -> Arc<Account> {
        if self.expires <= now
            && let Some(next) = &*self.principal.longest.load()
            && next.1 > now
        {
            return Arc::clone(&next.0);
        }
        Arc::clone(&self.account)
    }

    /// Returns the session token.
    pub fn token(&self) -> &Secret {
        let token = self.account.session_token.as_ref();
        token.expect("the account of a temporary key has a token")
    }

    /// Returns the role, if the key has one.
    pub fn role(&self) -> Option<&str> {
        role_of(self.principal.name()).filter(|role| !role.is_empty())
    }

    /// Returns the name of the payer that is charged: all keys of a role count as one.
    pub fn payer_name(&self) -> &str {
        self.role().unwrap_or(self.principal.name())
    }
}

/// Returns the role in the name of a principal; `None` if the name is none of a principal.
fn role_of(name: &str) -> Option<&str> {
    // The ARN of a role may contain the mark. A subject and a digest do not.
    let (rest, digest) = name.rsplit_once(MARK)?;
    let (role, _) = rest.rsplit_once(MARK)?;
    let is_digest = digest.len() == 16 && digest.bytes().all(|byte| byte.is_ascii_hexdigit());
    is_digest.then_some(role)
}

/// The temporary keys of a node.
#[derive(Debug, Default)]
pub(super) struct TemporaryKeys {
    by_access_key: Known,
    token_bytes: usize,
    /// The one that lives longest of each principal and of each role.
    by_name: HashMap<Arc<str>, Arc<Identity>>,
    /// The payers, by name.
    payers: HashMap<Arc<str>, u32>,
}

impl TemporaryKeys {
    pub(super) fn get(&self, access_key: &str) -> Option<&Arc<Identity>> {
        self.by_access_key.get(access_key)
    }

    pub(super) fn all(&self) -> Vec<Arc<TemporaryKey>> {
        let keys = self.by_access_key.values();
        keys.filter_map(|identity| identity.temporary.clone()).collect()
    }

    pub(super) fn named(&self, name: &str, now: SystemTime) -> Option<Arc<Identity>> {
        let of = |name: &str| {
            self.by_name
                .get(name)
                .filter(|found| !found.has_expired(now))
                .cloned()
        };
        of(name).or_else(|| of(role_of(name)?))
    }

    /// Returns the principal that `key` has in common with keys that are known; else its own.
    pub(super) fn principal_of(&self, key: &TemporaryKey) -> Arc<Principal> {
        let known = self.by_name.get(key.principal.name());
        let known = known.and_then(|identity| identity.temporary.as_ref());
        // The name may be that of a role.
        let known = known.filter(|known| known.principal == key.principal);
        Arc::clone(known.map_or(&key.principal, |known| &known.principal))
    }

    /// Adds a numbered identity. Returns false if there is no place for it.
    pub(super) fn add(&mut self, identity: Identity) -> bool {
        let Some(key) = identity.temporary.clone() else {
            return false;
        };
        let replaced = self.by_access_key.get(&identity.access_key);
        let token_bytes = self.token_bytes - replaced.map_or(0, |identity| token_bytes(identity));
        let token_bytes = token_bytes + key.token().expose().len();
        let is_crowded = replaced.is_none() && self.by_access_key.len() >= TEMPORARY_KEYS_MAX;
        if is_crowded || token_bytes > TOKEN_BYTES_MAX {
            return false;
        }
        self.token_bytes = token_bytes;
        key.principal.add(&key.account, key.expires);
        let identity = Arc::new(identity);
        for name in [Some(key.principal.name()), key.role()]
            .into_iter()
            .flatten()
            .map(Arc::from)
        {
            let longest = self.by_name.entry(name).or_insert_with(|| Arc::clone(&identity));
            if longest
                .temporary
                .as_ref()
                .is_none_or(|other| other.expires <= key.expires)
            {
                *longest = Arc::clone(&identity);
            }
        }
        self.by_access_key.insert(identity.access_key.clone(), identity);
        true
    }

    /// Returns the payer with a name, which is `index` if there is none yet.
    pub(super) fn payer(&mut self, index: u32, name: &str) -> u32 {
        let has_its_own = self.payers.len() < PAYERS_MAX || self.payers.contains_key(name);
        let name = if has_its_own { name } else { "" };
        *self.payers.entry(name.into()).or_insert(index)
    }

    pub(super) fn forget_expired(&mut self, now: SystemTime) -> bool {
        let before = self.by_access_key.len();
        self.by_access_key
            .retain(|_, identity| !identity.has_expired(now));
        self.by_name.retain(|_, identity| !identity.has_expired(now));
        self.token_bytes = self
            .by_access_key
            .values()
            .map(|identity| token_bytes(identity))
            .sum();
        self.by_access_key.len() < before
    }
}

fn token_bytes(identity: &Identity) -> usize {
    let key = identity.temporary.as_ref();
    key.map_or(0, |key| key.token().expose().len())
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::identity::{Caller, Identities};

    fn at(seconds: u64) -> SystemTime {
        SystemTime::UNIX_EPOCH + Duration::from_secs(seconds)
    }

    fn principal(role: &str, subject: &str, digest: u64) -> String {
        Principal::of_role(role, subject, digest).name().into()
    }

    fn key(access_key: &str, role: &str, subject: &str, expires: u64) -> TemporaryKey {
        TemporaryKey {
            account: Arc::new(Account {
                session_token: Some(Secret::new("token")),
                ..Account::new(access_key, "secret")
            }),
            expires: at(expires),
            principal: Arc::new(Principal::of_role(role, subject, 7)),
        }
    }

    fn named(identities: &Identities, name: &str, now: u64) -> Option<String> {
        let found = identities.named(name, at(now));
        found.map(|identity| identity.access_key.clone())
    }

    #[test]
    fn what_an_expired_key_began_is_signed_with_the_next_of_its_principal() {
        let identities = Identities::default();
        for (access_key, subject, expires) in [("K1", "s", 5), ("K2", "s", 9), ("K3", "other", 20)] {
            assert!(identities.learn(key(access_key, "role", subject, expires)));
        }
        let first = identities.get("K1").unwrap().temporary.clone().unwrap();
        let signer = |now| first.account_at(at(now)).access_key.clone();
        assert_eq!([signer(4), signer(5), signer(9)], ["K1", "K2", "K1"]);
        // Also one that comes later.
        assert!(identities.learn(key("K4", "role", "s", 30)));
        assert_eq!([signer(4), signer(9)], ["K1", "K4"]);
    }

    #[test]
    fn the_key_that_lives_longest_goes_on_for_its_principal_and_then_for_its_role() {
        let identities = Identities::default();
        for (access_key, subject, expires) in [("K1", "one", 10), ("K3", "one", 30), ("K2", "one", 20)] {
            assert!(identities.learn(key(access_key, "role/a#b", subject, expires)));
        }
        assert!(identities.learn(key("K4", "role/a#b", "two", 40)));
        let one = principal("role/a#b", "one", 7);
        assert_eq!(named(&identities, &one, 5).as_deref(), Some("K3"));
        assert_eq!(
            named(&identities, &one, 30).as_deref(),
            Some("K4"),
            "another key of the role"
        );
        assert_eq!(named(&identities, "role/a#b", 5).as_deref(), Some("K4"));
        assert_eq!(named(&identities, &one, 40), None);
        assert_eq!(named(&identities, "role/a", 5), None);
        // Keys without a role have nothing in common.
        assert!(identities.learn(key("K5", "", "three", 40)));
        assert_eq!(
            named(&identities, &principal("", "three", 7), 5).as_deref(),
            Some("K5")
        );
        assert_eq!(named(&identities, &principal("", "four", 7), 5), None);
        assert_eq!(named(&identities, "", 5), None);
    }

    #[test]
    fn expired_keys_are_forgotten_and_all_keys_of_a_role_are_one_payer() {
        let identities = Identities::default();
        for (access_key, role, expires) in [("K1", "a", 10), ("K2", "a", 20), ("K3", "b", 20)] {
            assert!(identities.learn(key(access_key, role, "s", expires)));
        }
        let caller = |access_key| identities.get(access_key).map(Caller::Identity);
        let callers = ["K1", "K2", "K3"].map(|access_key| caller(access_key).unwrap());
        assert_eq!(callers[0].payer(), callers[1].payer());
        assert_ne!(callers[0].payer(), callers[2].payer());
        assert_ne!(
            callers[0].id(),
            callers[1].id(),
            "a session policy may narrow one of them"
        );
        assert_eq!(callers[0].payer_name(), "a");
        assert!(identities.forget_expired(at(10)));
        assert!(!identities.forget_expired(at(19)));
        assert!(caller("K1").is_none() && caller("K2").is_some());
        assert_eq!(identities.temporary_keys().len(), 2);
    }

    #[test]
    fn a_key_that_comes_again_stays_the_same_caller_and_never_replaces_an_identity_of_the_configuration() {
        let identities = Identities::new([Identity::new("AK", "lasting")]);
        assert!(!identities.learn(key("AK", "a", "s", 10)));
        assert!(identities.learn(key("K1", "a", "s", 10)));
        let first = identities.get("K1").unwrap();
        assert!(identities.learn(key("K1", "a", "s", 10)));
        assert!(Arc::ptr_eq(&first, &identities.get("K1").unwrap()));
        assert!(identities.get("AK").unwrap().temporary.is_none());
        assert!(first.is_called("a") && first.is_called(&principal("a", "s", 7)) && !first.is_called("K1"));
    }

    #[test]
    fn beyond_a_bound_keys_have_no_place_until_others_expire() {
        let identities = Identities::default();
        for index in 0..TEMPORARY_KEYS_MAX {
            let role = format!("role-{}", index % (PAYERS_MAX + 7));
            assert!(identities.learn(key(&index.to_string(), &role, "s", 10 + (index % 2) as u64)));
        }
        assert!(!identities.learn(key("more", "a", "s", 20)));
        let payer = |role: usize| Caller::Identity(identities.get(&role.to_string()).unwrap()).payer();
        assert_eq!(
            payer(PAYERS_MAX + 1),
            payer(PAYERS_MAX + 5),
            "late roles share a payer"
        );
        assert_ne!(payer(0), payer(PAYERS_MAX + 1));
        assert!(identities.forget_expired(at(10)));
        assert!(identities.learn(key("more", "a", "s", 20)));
    }

    #[test]
    fn tokens_have_room_of_their_own_which_expired_ones_give_back() {
        let identities = Identities::default();
        let long = |access_key, expires| TemporaryKey {
            account: Arc::new(Account {
                session_token: Some(Secret::new("t".repeat(TOKEN_BYTES_MAX / 2))),
                ..Account::new(access_key, "secret")
            }),
            ..key(access_key, "a", "s", expires)
        };
        assert!(identities.learn(long("K1", 10)) && identities.learn(long("K2", 20)));
        assert!(!identities.learn(key("K3", "a", "s", 20)));
        assert!(identities.learn(long("K2", 30)), "it replaces itself");
        assert!(identities.forget_expired(at(10)));
        assert!(identities.learn(key("K3", "a", "s", 20)));
    }
}
