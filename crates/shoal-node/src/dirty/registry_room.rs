//! The room in the registry of a tier. The last part of it is for what makes room: flushes, removals of dirty
//! objects, and the ends of what has begun.

use std::sync::Arc;

use parking_lot::Mutex;
use shoal_base::amount::human_bytes;
use shoal_registry::engine::{Engine, EngineError, Room};

/// The room in one registry, as this node last saw it.
#[derive(Debug)]
pub(super) struct RegistryRoom {
    tier: Arc<str>,
    remedy: &'static str,
    room: Mutex<Option<Room>>,
}

/// Nothing that takes room begins in the registry of a tier.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "the registry of tier {tier} is nearly full ({used} of {quota}): dirty objects are brought to the lake and can be \
     removed, and nothing else begins", used = human_bytes(room.used_bytes), quota = human_bytes(room.quota_bytes)
)]
pub struct RegistryNearlyFull {
    /// The tier.
    pub tier: Arc<str>,
    /// What the operator can do.
    pub remedy: &'static str,
    room: Room,
}

impl RegistryRoom {
    /// The room in the registry of `tier`. An operator who makes more does as `remedy` says.
    pub(super) fn new(tier: Arc<str>, remedy: &'static str) -> Self {
        Self {
            tier,
            remedy,
            room: Mutex::new(None),
        }
    }

    /// Looks how full the registry is.
    ///
    /// # Errors
    ///
    /// The last look holds.
    pub(super) async fn look(&self, engine: &dyn Engine) -> Result<(), EngineError> {
        let room = engine.room().await?;
        *self.room.lock() = Some(room);
        Ok(())
    }

    /// The last look.
    pub(super) fn room(&self) -> Option<Room> {
        *self.room.lock()
    }

    /// Checks that there is room for something that begins.
    ///
    /// # Errors
    ///
    /// The rest is for what makes room.
    pub(super) fn check(&self) -> Result<(), RegistryNearlyFull> {
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
