//! Who is home to which name, as this node sees the last layer now.

use std::sync::Arc;

use sha2::{Digest, Sha256};
use shoal_policy::fingerprint::{Fingerprint, Placed as _};
use shoal_policy::ring::Ring;
use shoal_policy::route::Hierarchy;
use shoal_policy::{BlockId, NodeId, ObjectId};

use crate::cooperation::Cooperation;

/// The last layer at one moment. Two nodes that see the same members, each in the same state, have views of
/// the same digest.
#[derive(Clone, Debug)]
pub(in crate::dirty) struct View {
    /// Stands for everything that is seen.
    pub digest: u64,
    /// This node.
    pub me: NodeId,
    hierarchy: Arc<Hierarchy>,
    /// Everyone in the last layer, also those who drain; this node among them.
    members: Vec<NodeId>,
}

impl View {
    /// What this node sees now.
    pub(in crate::dirty) fn of(cooperation: &Cooperation) -> Self {
        let me = cooperation.me();
        let (hierarchy, known) = cooperation.arrangement();
        let mut members: Vec<NodeId> = ring(&hierarchy)
            .into_iter()
            .flat_map(|ring| ring.weights().keys().copied())
            .collect();
        if members.is_empty() {
            members.push(me);
        }
        let mut digest = Sha256::new();
        // `members` is sorted, as the map was.
        for node in &members {
            digest.update(node.0.to_le_bytes());
            if let Some(member) = known.iter().find(|member| member.id() == *node) {
                digest.update(member.generation.to_le_bytes());
                digest.update(member.weight_percent.to_le_bytes());
                digest.update([member.state as u8]);
            }
        }
        let digest = digest.finalize();
        let digest = u64::from_le_bytes(*digest.first_chunk().expect("SHA-256 has 32 bytes"));
        Self {
            digest,
            me,
            hierarchy,
            members,
        }
    }

    /// Everyone.
    pub(in crate::dirty) fn members(&self) -> &[NodeId] {
        &self.members
    }

    /// Everyone else.
    pub(in crate::dirty) fn others(&self) -> impl Iterator<Item = NodeId> {
        self.members.iter().copied().filter(|node| *node != self.me)
    }

    /// Where the manifest of an object lies: at the home of its name, and at the node that would be that
    /// without it. Empty when everyone drains.
    pub(in crate::dirty) fn homes(&self, object: ObjectId) -> Vec<NodeId> {
        let Some(ring) = ring(&self.hierarchy) else {
            return vec![self.me];
        };
        let name = fingerprint(object);
        let Some(home) = ring.home(name) else {
            return Vec::new();
        };
        let next = ring.home_among(name, |node| node != home);
        std::iter::once(home).chain(next).collect()
    }

    /// Whether this node orders what is done to an object.
    pub(in crate::dirty) fn is_first_home(&self, object: ObjectId) -> bool {
        self.homes(object).first() == Some(&self.me)
    }

    /// Who is to hold a block, among those that can be reached; this node if nobody else can.
    pub(in crate::dirty) fn holder(&self, block: BlockId, reachable: impl Fn(NodeId) -> bool) -> NodeId {
        let home = ring(&self.hierarchy).and_then(|ring| ring.home_among(block.place(), reachable));
        home.unwrap_or(self.me)
    }
}

/// The ring of the last layer; a node that caches alone has none.
fn ring(hierarchy: &Hierarchy) -> Option<&Ring> {
    hierarchy.layers.last().map(|layer| &layer.ring)
}

/// A digest is spread as a fingerprint has to be.
fn fingerprint(object: ObjectId) -> Fingerprint {
    let first = object.0.first_chunk().expect("an object's digest has 16 bytes");
    Fingerprint(u64::from_le_bytes(*first))
}
