//! The free room in a tier's registry. The last part of it is reserved for what makes room: flushes, removals
//! of dirty objects, and the ends of changes and uploads.

use std::sync::Arc;

use parking_lot::Mutex;
use shoal_base::amount::human_bytes;
use shoal_registry::engine::{Engine, EngineError, Room};

/// The room in one registry, as of this node's last query.
#[derive(Debug)]
pub(crate) struct RegistryRoom {
    tier: Arc<str>,
    remedy: &'static str,
    room: Mutex<Option<Room>>,
}

/// The registry of a tier is nearly full, so that nothing begins that takes room.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "the registry of tier {tier} is nearly full ({used} of {quota}): dirty objects are brought to the lake and can be \
     removed, and nothing else begins", used = human_bytes(room.used_bytes), quota = human_bytes(room.quota_bytes)
)]
pub struct RegistryNearlyFull {
    /// The tier.
    pub tier: Arc<str>,
    /// The remedy to show to operators.
    pub remedy: &'static str,
    room: Room,
}

impl RegistryRoom {
    /// Tracks the room in the registry of `tier`. `remedy` tells operators how to make more.
    pub(crate) fn new(tier: Arc<str>, remedy: &'static str) -> Self {
        Self {
            tier,
            remedy,
            room: Mutex::new(None),
        }
    }

    /// Queries how full the registry is.
    ///
    /// # Errors
    ///
    /// The result of the last query is kept.
    pub(crate) async fn look(&self, engine: &dyn Engine) -> Result<(), EngineError> {
        let room = engine.room().await?;
        *self.room.lock() = Some(room);
        Ok(())
    }

    /// Returns the result of the last query.
    pub(crate) fn room(&self) -> Option<Room> {
        *self.room.lock()
    }

    /// Checks that there is room for a new change or upload.
    ///
    /// # Errors
    ///
    /// The remaining room is reserved for what makes room.
    pub(crate) fn check(&self) -> Result<(), RegistryNearlyFull> {
        match self.room() {
            Some(room) if room.is_scarce() => Err(RegistryNearlyFull {
                tier: Arc::clone(&self.tier),
                remedy: self.remedy,
                room,
            }),
            _ => Ok(()),
        }
    }
}
