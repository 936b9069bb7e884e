//! A batch of messages, as encoded in the body of a request.

use bytes::Bytes;
use serde::{Deserialize, Serialize};
use shoal_base::encoding::Malformed;
use shoal_policy::NodeId;
use shoal_policy::outbox::{DEGREES, Outgoing};

use super::kind::{Kind, Message};

/// Maximum bytes of messages in a batch: two seconds of C2P events in the paper's setup, and less than one
/// record of the channel.
pub(super) const BATCH_BYTES: usize = 12 << 10;

/// Maximum size of a request body: the messages and their length prefixes.
pub const BODY_BYTES_MAX: usize = 2 * BATCH_BYTES;

/// Maximum size of one message.
pub(super) const MESSAGE_BYTES_MAX: usize = 1 << 10;

/// Maximum size of a message's length prefix in a batch, in bytes.
const PREFIX_BYTES: usize = 2;

/// A message that waits to be batched.
#[derive(Clone, Debug)]
pub(super) struct Queued {
    pub(super) kind: Kind,
    importance: usize,
    is_urgent: bool,
    bytes: Bytes,
}

impl Queued {
    /// `None` if the message is too long.
    pub(super) fn new<M: Message>(message: &M) -> Option<Self> {
        let bytes = postcard::to_stdvec(message).expect("memory takes every message");
        (bytes.len() <= MESSAGE_BYTES_MAX).then(|| Self {
            kind: M::KIND,
            importance: message.importance().min(DEGREES - 1),
            is_urgent: message.is_urgent(),
            bytes: bytes.into(),
        })
    }
}

impl Outgoing for Queued {
    fn bytes(&self) -> usize {
        self.bytes.len() + PREFIX_BYTES
    }

    fn importance(&self) -> usize {
        self.importance
    }

    fn is_urgent(&self) -> bool {
        self.is_urgent
    }
}

/// Messages grouped by kind, and their sender. The connection proves only that the peer belongs to the
/// cluster; the sender's identity is as claimed.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Batch<'a> {
    pub(super) sender: NodeId,
    #[serde(borrow)]
    pub(super) groups: Vec<Group<'a>>,
}

/// Messages of one kind. Each has a length prefix, so that a node can skip kinds and fields that it does not
/// know.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Group<'a> {
    pub(super) kind: u8,
    #[serde(borrow)]
    pub(super) messages: Vec<&'a [u8]>,
}

impl<'a> Batch<'a> {
    pub(super) fn of(sender: NodeId, messages: &'a [Queued]) -> Self {
        let groups = Kind::ALL.into_iter().map(|kind| Group {
            kind: kind.number(),
            messages: messages
                .iter()
                .filter(|message| message.kind == kind)
                .map(|message| &*message.bytes)
                .collect(),
        });
        Self {
            sender,
            groups: groups.filter(|group| !group.messages.is_empty()).collect(),
        }
    }

    pub(super) fn to_bytes(&self) -> Bytes {
        let bytes = postcard::to_stdvec(self).expect("memory takes every batch");
        debug_assert!(bytes.len() <= BODY_BYTES_MAX, "a batch fits a body");
        bytes.into()
    }

    pub(super) fn of_bytes(bytes: &'a [u8]) -> Result<Self, Malformed> {
        if bytes.len() > BODY_BYTES_MAX {
            return Err(Malformed);
        }
        postcard::from_bytes(bytes).map_err(|_| Malformed)
    }
}

impl Group<'_> {
    /// Parses the messages, skipping malformed ones.
    pub(super) fn read<M: Message>(&self) -> Vec<M> {
        let read = |bytes: &&[u8]| {
            let (message, _later_fields) = postcard::take_from_bytes(bytes).ok()?;
            Some(message)
        };
        self.messages.iter().filter_map(read).collect()
    }
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::{any, proptest};
    use serde::{Deserialize, Serialize};
    use shoal_policy::NodeId;
    use shoal_policy::outbox::Outgoing;

    use super::{BATCH_BYTES, BODY_BYTES_MAX, Batch, Kind, MESSAGE_BYTES_MAX, Message, PREFIX_BYTES, Queued};

    #[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
    struct Text(String);

    /// The same message in a later build.
    #[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
    struct LongerText(String, u32);

    impl Message for Text {
        const KIND: Kind = Kind::CacheEvent;

        fn importance(&self) -> usize {
            self.0.len()
        }

        fn is_urgent(&self) -> bool {
            self.0.is_empty()
        }
    }

    impl Message for LongerText {
        const KIND: Kind = Kind::CacheEvent;

        fn importance(&self) -> usize {
            0
        }
    }

    fn text(len: usize) -> Text {
        Text("x".repeat(len))
    }

    #[test]
    fn a_batch_is_read_as_it_was_written() {
        let queued = [text(3), text(0)].map(|text| Queued::new(&text).unwrap());
        assert_eq!(queued.each_ref().map(Outgoing::is_urgent), [false, true]);
        let bytes = Batch::of(NodeId(u64::MAX), &queued).to_bytes();
        let batch = Batch::of_bytes(&bytes).unwrap();
        assert_eq!(batch.sender, NodeId(u64::MAX));
        let [group] = &batch.groups[..] else {
            panic!("there is one kind")
        };
        assert_eq!(Kind::of(group.kind), Some(Kind::CacheEvent));
        assert_eq!(group.read::<Text>(), [text(3), text(0)]);
    }

    #[test]
    fn fields_of_a_later_build_are_passed_over_and_what_lacks_them_is_not_read() {
        let later = [Queued::new(&LongerText("x".into(), 7)).unwrap()];
        let bytes = Batch::of(NodeId(1), &later).to_bytes();
        assert_eq!(
            Batch::of_bytes(&bytes).unwrap().groups[0].read::<Text>(),
            [text(1)]
        );
        let earlier = [Queued::new(&text(1)).unwrap()];
        let bytes = Batch::of(NodeId(1), &earlier).to_bytes();
        assert_eq!(
            Batch::of_bytes(&bytes).unwrap().groups[0].read::<LongerText>(),
            []
        );
    }

    #[test]
    fn a_full_batch_of_the_smallest_messages_fits_a_body() {
        let smallest = Queued::new(&text(0)).unwrap();
        let count = BATCH_BYTES / smallest.bytes();
        let bytes = Batch::of(NodeId(u64::MAX), &vec![smallest; count]).to_bytes();
        assert!(Batch::of_bytes(&bytes).is_ok());
        let longest = Queued::new(&text(MESSAGE_BYTES_MAX - 2)).unwrap();
        assert_eq!(longest.bytes(), MESSAGE_BYTES_MAX + PREFIX_BYTES);
        assert!(Queued::new(&text(MESSAGE_BYTES_MAX)).is_none(), "too long");
        assert!(Batch::of_bytes(&vec![0; BODY_BYTES_MAX + 1]).is_err());
    }

    proptest! {
        #[test]
        fn any_bytes_are_a_batch_or_refused(bytes in vec(any::<u8>(), 0..200)) {
            if let Ok(batch) = Batch::of_bytes(&bytes) {
                batch.groups.iter().for_each(|group| drop(group.read::<Text>()));
            }
        }
    }
}
