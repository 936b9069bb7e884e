//! Settings that must be the same on every node. Each node broadcasts a keyed digest of each of them, and
//! compares.
//!
//! ```text
//! | mark 1 | version 1 | length 1 | name | sets 1 | parts 1 | per set: key 4 | per part: digest 8 |
//! ```
//!
//! A digest is an HMAC under the cluster's secret, so it reveals nothing to a receiver without the secret. A
//! node that knows two secrets sends a set for each; two nodes compare the sets of a secret that both know.
//! An older node, which does not understand this message, does not answer and is not compared.

use std::collections::BTreeMap;

use hmac::{Hmac, KeyInit, Mac};
use parking_lot::Mutex;
use sha2::Sha256;

use crate::words;

/// Distinguishes digests from gossip, which begins with the kind of an address, 0 or 1.
const MARK: u8 = 0xA5;
const VERSION: u8 = 1;
const KEY_BYTES: usize = 4;
const DIGEST_BYTES: usize = 8;

words! {
    /// A part of the configuration that must be the same on every node.
    pub enum SharedSetting {
        /// `[store] block_size`
        BlockSize = "block-size",
        /// `[lake] endpoint`
        Lake = "lake",
        /// `[cooperation] layers`
        Layers = "layers",
        /// `[write] default` and `[[write.rule]]`
        WriteRules = "write-rules",
        /// `[[identity]]`
        Identities = "identities",
        /// `[[tier]]`
        Tiers = "tiers",
        /// `[lake] bandwidth`, if it is shared by the cluster
        Bandwidth = "bandwidth",
        /// `[sts] roles` and `endpoint`
        Sts = "sts",
    }
}

impl SharedSetting {
    /// Returns the name of the setting.
    pub const fn setting(self) -> &'static str {
        match self {
            Self::BlockSize => "[store] block_size",
            Self::Lake => "[lake] endpoint",
            Self::Layers => "[cooperation] layers",
            Self::WriteRules => "[write] and [[write.rule]]",
            Self::Identities => "[[identity]]",
            Self::Tiers => "[[tier]]",
            Self::Bandwidth => "[lake] bandwidth",
            Self::Sts => "[sts] roles",
        }
    }
}

/// Digest of one part, under construction.
#[derive(Debug)]
pub struct SettingDigest(Hmac<Sha256>);

impl SettingDigest {
    /// Adds a setting or a list element.
    pub fn add(&mut self, text: &str) {
        self.0.update(&(text.len() as u64).to_le_bytes());
        self.0.update(text.as_bytes());
    }
}

type Digests = Vec<[u8; DIGEST_BYTES]>;

/// Digests of the shared settings, under each secret that a node knows.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SettingsDigests(BTreeMap<[u8; KEY_BYTES], Digests>);

impl SettingsDigests {
    /// Computes the digests of a configuration, under each secret of its cluster. `digest` adds the values of
    /// one shared setting; its last argument is true if the cluster has a secret.
    pub fn new<'a>(
        secrets: impl Iterator<Item = &'a str>,
        digest: impl Fn(SharedSetting, &mut SettingDigest, bool),
    ) -> Self {
        Self(secrets.map(|secret| Self::under(secret, &digest)).collect())
    }

    fn under(
        secret: &str,
        digest: impl Fn(SharedSetting, &mut SettingDigest, bool),
    ) -> ([u8; KEY_BYTES], Digests) {
        // Gossip and node-to-node signatures derive keys from the same secret: the prefix keeps a proof of
        // one kind from being accepted as another.
        let key = [b"shoal terms ", secret.as_bytes()].concat();
        let keyed = || Hmac::<Sha256>::new_from_slice(&key).expect("a key may have any length");
        let digests = SharedSetting::ALL.map(|part| {
            let mut mac = keyed();
            mac.update(part.as_str().as_bytes());
            let mut part_digest = SettingDigest(mac);
            digest(part, &mut part_digest, !secret.is_empty());
            first(part_digest.0)
        });
        let mut mac = keyed();
        mac.update(b"which secret");
        (first(mac), digests.to_vec())
    }

    /// Encodes the digests as a message of the node `name`.
    pub(in crate::membership) fn encode(&self, name: &str) -> Vec<u8> {
        let parts = self.0.values().next().map_or(0, Vec::len);
        let mut message = vec![MARK, VERSION, byte(name.len())];
        message.extend_from_slice(name.as_bytes());
        message.extend([byte(self.0.len()), byte(parts)]);
        for (key, digests) in &self.0 {
            debug_assert_eq!(digests.len(), parts, "each secret has a digest of each part");
            message.extend_from_slice(key);
            message.extend_from_slice(digests.as_flattened());
        }
        message
    }

    /// Returns true if a message carries digests of settings.
    pub(in crate::membership) fn are_in(message: &[u8]) -> bool {
        message.first() == Some(&MARK)
    }

    /// Parses the sender's name and its digests.
    pub(in crate::membership) fn decode(message: &[u8]) -> Option<(&str, Self)> {
        let (&[_, version, length], rest) = message.split_first_chunk()?;
        if version != VERSION {
            return None;
        }
        let (name, rest) = rest.split_at_checked(length.into())?;
        let (&[sets, parts], rest) = rest.split_first_chunk()?;
        let set_bytes = KEY_BYTES + DIGEST_BYTES * usize::from(parts);
        if rest.len() != usize::from(sets) * set_bytes {
            return None;
        }
        let sets = rest.chunks_exact(set_bytes).map(|set| {
            let (key, digests) = set.split_first_chunk().expect("a set begins with its key");
            let (digests, _) = digests.as_chunks();
            (*key, digests.to_vec())
        });
        Some((std::str::from_utf8(name).ok()?, Self(sets.collect())))
    }

    /// Returns the settings that differ; none if the nodes have no secret in common.
    pub fn differences(&self, other: &Self) -> Vec<SharedSetting> {
        let shared = self
            .0
            .iter()
            .find_map(|(key, mine)| Some((mine, other.0.get(key)?)));
        let Some((mine, theirs)) = shared else {
            return Vec::new();
        };
        let pairs = SharedSetting::ALL.into_iter().zip(mine.iter().zip(theirs));
        pairs
            .filter(|(_, (mine, theirs))| mine != theirs)
            .map(|(part, _)| part)
            .collect()
    }
}

fn byte(count: usize) -> u8 {
    u8::try_from(count).expect("names, secrets and parts are fewer than 256")
}

fn first<const N: usize>(mac: Hmac<Sha256>) -> [u8; N] {
    *mac.finalize()
        .into_bytes()
        .first_chunk()
        .expect("SHA-256 has 32 bytes")
}

/// Result of comparing this node's settings with each other node's.
#[derive(Debug, Default)]
pub struct Agreement(Mutex<Inner>);

#[derive(Debug, Default)]
struct Inner {
    own: SettingsDigests,
    others: BTreeMap<String, SettingsDigests>,
}

impl Agreement {
    /// Sets this node's digests, at start and after a reload of its configuration.
    pub fn renew(&self, own: SettingsDigests) {
        let mut inner = self.0.lock();
        for (name, theirs) in &inner.others {
            log_change(name, &inner.own.differences(theirs), &own.differences(theirs));
        }
        inner.own = own;
    }

    /// Returns this node's digests.
    pub(in crate::membership) fn own(&self) -> SettingsDigests {
        self.0.lock().own.clone()
    }

    /// Records the digests of the member `name`.
    pub(in crate::membership) fn receive(&self, name: &str, theirs: SettingsDigests) {
        let mut inner = self.0.lock();
        let before = inner.others.get(name);
        let before = before.map_or_else(Vec::new, |theirs| inner.own.differences(theirs));
        log_change(name, &before, &inner.own.differences(&theirs));
        inner.others.insert(name.to_owned(), theirs);
    }

    /// Forgets nodes that are no longer members.
    pub(in crate::membership) fn keep_only(&self, is_member: impl Fn(&str) -> bool) {
        self.0.lock().others.retain(|name, _| is_member(name));
    }

    /// Returns the settings in which the node `name` differs, or `None` if it has not sent its digests.
    pub fn differences(&self, name: &str) -> Option<Vec<SharedSetting>> {
        let inner = self.0.lock();
        Some(inner.own.differences(inner.others.get(name)?))
    }

    /// Returns the nodes that differ, and in which settings.
    pub fn different(&self) -> Vec<(String, Vec<SharedSetting>)> {
        let inner = self.0.lock();
        let others = inner.others.iter();
        let differences = others.map(|(name, theirs)| (name.clone(), inner.own.differences(theirs)));
        differences.filter(|(_, settings)| !settings.is_empty()).collect()
    }
}

fn log_change(name: &str, before: &[SharedSetting], differs: &[SharedSetting]) {
    if differs == before {
        return;
    }
    if differs.is_empty() {
        tracing::info!(node = name, "another node is configured like this one again");
        return;
    }
    let settings: Vec<&str> = differs.iter().map(|part| part.setting()).collect();
    tracing::error!(
        node = name,
        differs = settings.join(", "),
        hint = "write the same values on every node of a cluster; until then, answers depend on the node that a client asks",
        "another node is configured differently",
    );
}

#[cfg(test)]
mod tests {
    use super::{Agreement, SettingsDigests, SharedSetting};

    /// The digests of a node with this block size.
    fn digests(block_size: &str) -> SettingsDigests {
        SettingsDigests::new(["secret"].into_iter(), |part, digest, _| {
            if part == SharedSetting::BlockSize {
                digest.add(block_size);
            }
        })
    }

    #[test]
    fn a_message_is_read_as_it_is_written_and_nothing_else_is() {
        let digests = digests("4M");
        let message = digests.encode("node-1");
        assert!(
            SettingsDigests::are_in(&message) && message.len() < 128,
            "{} bytes",
            message.len()
        );
        assert_eq!(SettingsDigests::decode(&message), Some(("node-1", digests)));
        for end in 0..message.len() {
            assert_eq!(SettingsDigests::decode(&message[..end]), None, "cut at {end}");
        }
        assert_eq!(SettingsDigests::decode(&[&message[..], &[0]].concat()), None);
    }

    #[test]
    fn a_difference_lasts_until_either_configuration_changes_or_the_node_leaves() {
        let agreement = Agreement::default();
        agreement.renew(digests("4M"));
        assert_eq!(agreement.differences("n1"), None);
        let smaller = || digests("1M");
        agreement.receive("n1", smaller());
        agreement.receive("n2", digests("4M"));
        assert_eq!(
            agreement.different(),
            [("n1".to_owned(), vec![SharedSetting::BlockSize])]
        );
        assert_eq!(agreement.differences("n2"), Some(vec![]));
        agreement.renew(smaller());
        assert_eq!(
            agreement.different(),
            [("n2".to_owned(), vec![SharedSetting::BlockSize])]
        );
        agreement.receive("n2", smaller());
        assert_eq!(agreement.different(), []);
        agreement.keep_only(|name| name == "n1");
        assert_eq!(agreement.differences("n2"), None);
    }
}
