//! Rules that can be left out, to see that the model notices.

/// A rule that is left out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Planted {
    /// Entries lose their objects once the pack is at the lake, before the root names the new map.
    LeavesBeforeTheMap,
    /// A packer whose PUT of a pack was not answered goes on as if the lake had the pack.
    TakesThePackForCertain,
    /// A GET that finds an empty entry uses the map that its node read last, and not the one that was current
    /// with the entry.
    ReadsByAnOldMap,
    /// An empty entry is removed although a node may still use a map from before.
    RemovesAnEntryTooEarly,
    /// The old pack is removed although a reader has found it.
    RemovesAPackAtOnce,
    /// The old pack is removed although a node may still use a map that names it.
    RemovesAMappedPack,
    /// The old pack is removed before the root names the new map.
    RemovesAPackBeforeTheCommit,
    /// The root is committed although another packer has changed it.
    OverwritesTheRoot,
    /// A DELETE leaves no tombstone.
    LeavesNoTombstone,
    /// The flush of a tombstone leaves the name in the map.
    RemovedButMapped,
    /// The flush of a large object leaves the name in the map.
    OverwrittenButMapped,
    /// A write through at a packed name does not unpack it first, but takes the name out of the map when the
    /// lake has the new object.
    WritesThroughOverPacked,
    /// A node looks up in the map that it has read last whether a change has to take a name out of the map.
    ChangesByAnOldMap,
    /// A rebuild takes the newest object of each name in any pack.
    RebuildsFromPacks,
    /// A reservation of a dead packer ends without a look whether its manifest is at the lake.
    ReleasesWithoutLooking,
    /// Unpacking writes the object without a change in the entry.
    UnpacksWithoutBusy,
    /// A rewrite of a pack commits the map that it read when it began, with its own changes.
    RewritesAnOldMap,
    /// The changes of a dead packer are given up before its reservation is resolved.
    GivesUpBeforeItResolves,
    /// A reservation of a dead packer is resolved while its manifest may still be on its way.
    ResolvesWithoutFence,
    /// A LIST reads the map before the entries.
    ListsTheMapFirst,
    /// Packing an object removes an older plain one under its own name.
    RemovesWhatItPacks,
}
