//! Block names uniformly distributed over 64 bits, the same on every machine and in every release.

use crate::{BlockId, VersionId};

/// 64 uniformly distributed bits that stand for a block or for its place. Among n blocks, two share a
/// fingerprint with probability n²/2⁶⁵: 10⁻⁷ among two million.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Fingerprint(pub u64);

impl Fingerprint {
    /// The fingerprint of a number, such as the keys of a trace or of a simulation.
    pub const fn of_number(number: u64) -> Self {
        Self(mix(number))
    }
}

/// A key that has a place on rings.
pub trait Placed {
    /// The place, from which [`crate::ring`] derives a home. All nodes of a cluster must compute the same
    /// value, because nodes exchange values; a test pins them.
    fn place(&self) -> Fingerprint;
}

impl Placed for BlockId {
    /// Depends on object and index only, so that all versions of a block have the same place.
    fn place(&self) -> Fingerprint {
        let mut object = [0; 8];
        object[..VersionId::OF_THE_OBJECT].copy_from_slice(&self.version.0[..VersionId::OF_THE_OBJECT]);
        let object = mix(u64::from_le_bytes(object));
        Fingerprint(mix(object.wrapping_add(u64::from(self.index))))
    }
}

impl From<BlockId> for Fingerprint {
    /// Each part is mixed before the next one is added, so versions that are numbers, as in tests, spread as
    /// digests do.
    fn from(BlockId { version, index }: BlockId) -> Self {
        let version = u128::from_le_bytes(version.0);
        let low = mix(version as u64);
        let high = mix(low ^ (version >> 64) as u64);
        Self(mix(high.wrapping_add(u64::from(index))))
    }
}

/// The number that `SplitMix64` adds before it mixes: 2⁶⁴ divided by the golden ratio.
const STEP: u64 = 0x9e37_79b9_7f4a_7c15;

/// One step of `SplitMix64` (Steele, Lea and Flood 2014): a bijection in which each bit of `number` flips
/// half of the result.
pub(crate) const fn mix(number: u64) -> u64 {
    let mut mixed = number.wrapping_add(STEP);
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::{Fingerprint, Placed as _, mix};
    use crate::{BlockId, ObjectId, VersionId};

    fn block(version: u128, index: u32) -> BlockId {
        let version = VersionId(version.to_le_bytes());
        BlockId { version, index }
    }

    #[test]
    fn the_values_are_those_of_every_other_node() {
        // The first two are published: the first outputs of SplitMix64 seeded with 0 and with its own step.
        assert_eq!(mix(0), 0xe220_a839_7b1d_cdaf);
        assert_eq!(mix(super::STEP), 0x6e78_9e6a_a1b9_65f4);
        let version = 0x0123_4567_89ab_cdef_0fed_cba9_8765_4321;
        assert_eq!(
            Fingerprint::from(block(version, 0)),
            Fingerprint(0x4ec2_d9a0_b38b_a66d)
        );
        assert_eq!(
            Fingerprint::from(block(version, 7)),
            Fingerprint(0xabf0_1d98_b7e3_5254)
        );
        assert_eq!(block(version, 0).place(), Fingerprint(0xd993_3c65_9b56_7d29));
        assert_eq!(block(version, 7).place(), Fingerprint(0xd211_3f64_b5d2_0eec));
    }

    #[test]
    fn versions_of_an_object_have_their_blocks_at_one_place_and_those_of_others_at_others() {
        let version = |object: u8, digest: u8| VersionId::new(ObjectId([object; 16]), [digest; 16]);
        let place = |version, index| BlockId { version, index }.place();
        assert_ne!(version(1, 1), version(1, 2));
        assert_eq!(place(version(1, 1), 3), place(version(1, 2), 3));
        let blocks = (0..64).flat_map(|object| (0..64).map(move |index| place(version(object, 9), index)));
        let places: HashSet<Fingerprint> = blocks.collect();
        assert_eq!(places.len(), 64 * 64);
    }

    #[test]
    fn neighbours_in_every_direction_differ() {
        let versions = (0..16).flat_map(|number: u128| [number, number << 64, number << 32]);
        let versions: HashSet<u128> = versions.collect();
        let blocks = versions
            .iter()
            .flat_map(|&version| (0..64).map(move |index| block(version, index)));
        let fingerprints: HashSet<Fingerprint> = blocks.map(Fingerprint::from).collect();
        assert_eq!(fingerprints.len(), versions.len() * 64);
    }
}
