//! A cache event, as sent between nodes.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use shoal_policy::eviction::c2p::{Event, EventKind};
use shoal_policy::outbox::DEGREES;
use shoal_policy::{BlockId, Layer};
use shoal_store::CacheEvent;

use crate::nodes::messages::{Kind, Message};

/// Maximum lead of another node's clock. An event further in the future is rejected, because it would make
/// later events of its node look old.
const AHEAD_MAX: Duration = Duration::from_mins(1);

/// An encoded [`CacheEvent`]: 28 to 52 bytes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct CacheEventMessage {
    kind: u8,
    layer: Layer,
    block: BlockId,
    /// Milliseconds since 1970.
    at_ms: u64,
    held: u64,
    read: u64,
    /// For the sender alone.
    #[serde(skip)]
    is_urgent: bool,
}

const _: () = assert!(
    EventKind::ALL.len() <= DEGREES,
    "each kind has a degree of importance"
);

impl Message for CacheEventMessage {
    const KIND: Kind = Kind::CacheEvent;

    fn importance(&self) -> usize {
        usize::from(self.kind)
    }

    fn is_urgent(&self) -> bool {
        self.is_urgent
    }
}

impl From<&CacheEvent> for CacheEventMessage {
    fn from(CacheEvent { layer, event, .. }: &CacheEvent) -> Self {
        Self {
            kind: event.kind as u8,
            layer: *layer,
            block: event.key,
            at_ms: u64::try_from(event.at.as_millis()).unwrap_or(u64::MAX),
            held: event.held,
            read: event.read,
            is_urgent: event.is_urgent,
        }
    }
}

impl CacheEventMessage {
    /// Returns the event; `None` if it is impossible at `now`.
    pub(super) fn into_event(self, now: Duration) -> Option<CacheEvent> {
        let kind = EventKind::ALL.into_iter().find(|kind| *kind as u8 == self.kind)?;
        let at = Duration::from_millis(self.at_ms);
        // L1 is private to each node.
        let is_possible = self.layer > Layer::L1 && at <= now + AHEAD_MAX;
        is_possible.then_some(CacheEvent {
            layer: self.layer,
            event: Event {
                at,
                key: self.block,
                kind,
                held: self.held,
                read: self.read,
                is_urgent: self.is_urgent,
            },
            group_blocks: 0,
        })
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use shoal_policy::eviction::c2p::{Event, EventKind};
    use shoal_policy::{BlockId, Layer, VersionId};
    use shoal_store::CacheEvent;

    use super::{AHEAD_MAX, CacheEventMessage};
    use crate::nodes::messages::Message as _;

    const NOW: Duration = Duration::from_hours(500_000);

    fn event(kind: EventKind) -> CacheEvent {
        CacheEvent {
            layer: Layer::L2,
            event: Event {
                at: NOW,
                key: BlockId {
                    version: VersionId([0xff; 16]),
                    index: u32::MAX,
                },
                kind,
                held: u64::MAX >> 1,
                read: u64::MAX,
                is_urgent: false,
            },
            group_blocks: 0,
        }
    }

    #[test]
    fn every_event_is_read_as_it_was_written_and_is_short() {
        for kind in EventKind::ALL {
            let message = CacheEventMessage::from(&event(kind));
            let bytes = postcard::to_stdvec(&message).unwrap();
            assert!(bytes.len() <= 52, "{} bytes", bytes.len());
            let read: CacheEventMessage = postcard::from_bytes(&bytes).unwrap();
            assert_eq!(read.into_event(NOW), Some(event(kind)));
        }
    }

    #[test]
    fn an_urgent_event_is_urgent_for_its_sender_alone() {
        let mut event = event(EventKind::Replace);
        event.event.is_urgent = true;
        let message = CacheEventMessage::from(&event);
        assert!(message.is_urgent());
        let read: CacheEventMessage = postcard::from_bytes(&postcard::to_stdvec(&message).unwrap()).unwrap();
        assert!(!read.is_urgent());
    }

    #[test]
    fn what_cannot_have_happened_is_not_taken_in() {
        let lies: [fn(&mut CacheEventMessage); 4] = [
            |message| message.kind = 5,
            |message| message.layer = Layer::L1,
            |message| message.layer = Layer(0),
            |message| message.at_ms += AHEAD_MAX.as_millis() as u64 + 1,
        ];
        for (number, lie) in lies.iter().enumerate() {
            let mut message = CacheEventMessage::from(&event(EventKind::Hit));
            lie(&mut message);
            assert_eq!(message.into_event(NOW), None, "lie {number}");
        }
    }
}
