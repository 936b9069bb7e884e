//! Rules that can be left out, to see that the model notices.

/// A rule that is left out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Planted {
    /// A flush sends its request without a change in the entry.
    FlushWithoutBusy,
    /// A process whose request was not answered gives the change up at once.
    GivesUpWithoutFence,
    /// A node clears the change of a dead owner at once.
    AdoptsWithoutFence,
    /// A node clears the change of an owner whose session has not ended.
    AdoptsFromTheLiving,
    /// A GET returns a 404 of the lake without checking the registry again.
    NoSecondLook,
    /// An empty entry is removed although a GET that began before it became empty is not over.
    RemovedDuringGet,
    /// An empty entry is removed although a commit on the condition that there is no entry is on its way,
    /// or is about to be sent again.
    RemovedDuringCommit,
    /// An operation ends while its change may still begin, and its node does not give up changes that it does
    /// not know.
    LeavesItsChange,
    /// The end of a change removes whatever object is current.
    DoneRemovesNewer,
    /// A PUT whose commit was not answered starts over.
    RetryWithoutLooking,
    /// A commit happens although the entry has changed.
    NoCondition,
    /// A node that was frozen sends its request although its session has ended.
    SendsAfterItsSession,
    /// A node asks if its session lasts when it puts a request into a buffer, and not when it sends the
    /// buffer.
    AsksAboveABuffer,
    /// A flush takes its object out of the entry before the lake has it.
    RemovedBeforeLake,
    /// A GET asks the lake before it reads the entry.
    LakeFirst,
    /// A conditional PUT begins although there is a dirty object.
    ConditionWithoutFlush,
    /// A PUT through the cache begins although there is a dirty object, and replaces it when it is done.
    WriteWithoutFlush,
    /// A node sends a commit that was not answered again, with the name of its new life in it.
    RetriesInAnotherLife,
    /// A DELETE whose change was given up by another node answers as if it had ended it itself.
    TrustsOthers,
    /// The same, unless the object that it was to remove is still in the entry.
    TrustsTheEntry,
    /// A node that has taken over its earlier life clears that one's changes before the session of that life
    /// has ended by its own clock.
    AdoptsAtTakeover,
    /// A change that is refused removes an empty entry at once that was there before it.
    LeavesNothingOfAnEntry,
    /// A DELETE answers before its tombstone is committed.
    AnswersBeforeTheTombstone,
    /// A GET that finds a tombstone asks the lake, as if there were no dirty object.
    AsksTheLakeBehindATombstone,
    /// The end of a flush drops a tombstone that the lake has refused to carry out.
    DropsARefusedTombstone,
    /// A PUT over a tombstone takes the removal on its way out of the entry, too.
    OverwritesARemoval,
    /// A DELETE of a dirty object leaves no tombstone, because the lake never got that object.
    ForgetsTheYoung,
}
