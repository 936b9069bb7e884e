//! Questions of the node that runs a task, or carries a plan out, to other nodes: the body of a `QUERY` of
//! [`TASKS`], and of its answer, both serialized by `postcard`.

use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use bytes::Bytes;
use http::{HeaderMap, StatusCode};
use serde::{Deserialize, Serialize};
use shoal_base::encoding::Malformed;
use shoal_base::moment::millis_since_1970;
use shoal_cache::obtain::Obtain;
use shoal_cache::peer::{BlockRequest, CallerName};
use shoal_net::link::PromiseId;
use shoal_policy::admission::Refusal;
use shoal_policy::{Layer, ObjectId, Source, VersionId};
use shoal_s3::object::{ObjectName, Version};
use shoal_s3::range::ByteRange;
use shoal_store::{Kept, PinOrder};

use super::fill::NotFilled;

/// The path at which a node answers.
pub const TASKS: &str = "/tasks";

/// The longest question in bytes.
pub const QUESTION_BYTES_MAX: usize = 256 << 10;

/// The longest answer in bytes.
pub const ANSWER_BYTES_MAX: usize = 1 << 20;

/// The most bytes of a list of objects in one answer.
pub const MANIFEST_PART_BYTES: u64 = 512 << 10;

/// The most objects or versions in one question.
pub const NAMES_MAX: usize = 4096;

/// The most blocks that one question is about.
pub const BLOCKS_MAX: u64 = 1 << 20;

/// A pin of an order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pin {
    /// The order.
    pub order: PinOrder,
    /// Its end.
    pub until: SystemTime,
}

/// A transfer of a plan, as its coordinator names it to the nodes that fetch for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PlannedFill {
    /// The id of the plan.
    pub plan: u128,
    /// The number of the transfer.
    pub transfer: u64,
    /// Its planned rate in bytes a second.
    pub rate: u64,
}

/// The rate that a plan promises to clients' reads from the lake, at one node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PromisedRead {
    /// Names the promise.
    pub id: PromiseId,
    /// Bytes a second.
    pub bytes_per_second: u64,
    /// For how long, unless it is told again; zero ends it.
    pub life: Duration,
}

/// A block that a node is to hold.
#[derive(Clone, Debug)]
pub struct Fill {
    /// Its version.
    pub version: Arc<Version>,
    /// Its index in the version.
    pub index: u32,
    /// The layer in which the node is asked for it.
    pub layer: Layer,
    /// The order that keeps it there.
    pub pin: Option<Pin>,
    /// The planned transfer of which it is a part.
    pub planned: Option<PlannedFill>,
    /// The caller in whose name the node asks the lake.
    pub caller: CallerName,
    /// The object.
    pub name: ObjectName,
}

/// A question to a node.
#[derive(Clone, Debug)]
pub enum Question {
    /// Hold this block.
    Fill(Box<Fill>),
    /// Which of the first blocks of these versions do you hold?
    Held(Vec<(VersionId, u32)>),
    /// Pin these objects.
    Pin(Pin, Vec<ObjectId>),
    /// End the pins of these objects by orders before this one.
    Unpin(PinOrder, Vec<ObjectId>),
    /// Remove the blocks of these objects, unless they are pinned.
    Evict(Vec<ObjectId>),
    /// Send the list of this task, from an offset on.
    Manifest(u128, u64),
    /// Let clients' reads of these objects have a rate of their own on the link.
    Promise(PromisedRead, Vec<ObjectId>),
}

/// An answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// To [`Question::Fill`]: where the block came from; `None`: it was there.
    Filled(Result<Option<Source>, NotFilled>),
    /// To [`Question::Held`]: for each version the blocks that are held.
    Held(Vec<BlockBits>),
    /// To [`Question::Pin`] and [`Question::Unpin`]: the blocks of each object that are pinned, or were until
    /// now.
    Kept(Vec<Kept>),
    /// To [`Question::Evict`]: the blocks of each object that were removed; none of an object that is pinned.
    Evicted(Vec<Evicted>),
    /// To [`Question::Manifest`]: some bytes; none at the end of the list.
    Manifest(Bytes),
    /// To [`Question::Promise`].
    Promised,
    /// The node cannot do it.
    Refused(String),
}

/// Result of removing an object's blocks from one node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Evicted {
    /// Blocks that were removed.
    pub blocks: u64,
    /// The room that they took, in bytes.
    pub bytes: u64,
    /// Whether the blocks stay, because the object is pinned.
    pub is_pinned: bool,
}

/// Some blocks of a version.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct BlockBits(Vec<u8>);

impl BlockBits {
    /// These blocks, which are in ascending order, of the first `count`.
    pub fn of(indexes: &[u32], count: u32) -> Self {
        let mut bits = vec![0; count.div_ceil(8) as usize];
        for index in indexes.iter().filter(|index| **index < count) {
            bits[*index as usize / 8] |= 1 << (index % 8);
        }
        Self(bits)
    }

    /// Whether a block is among them.
    pub fn has(&self, index: u32) -> bool {
        let byte = self.0.get(index as usize / 8);
        byte.is_some_and(|byte| byte & (1 << (index % 8)) != 0)
    }
}

/// [`Question`] as it stands in a body.
#[derive(Serialize, Deserialize)]
enum QuestionMessage<'a> {
    Fill {
        layer: u8,
        pin: Option<(u128, u64)>,
        /// Plan, transfer, and bytes a second.
        planned: Option<(u128, u64, u64)>,
        /// A [`BlockRequest`].
        #[serde(borrow)]
        block: &'a [u8],
    },
    Held(Vec<([u8; 16], u32)>),
    Pin((u128, u64), Vec<[u8; 16]>),
    Unpin(u128, Vec<[u8; 16]>),
    Evict(Vec<[u8; 16]>),
    Manifest(u128, u64),
    /// Plan, job, bytes a second, and milliseconds.
    Promise((u128, u64, u64, u64), Vec<[u8; 16]>),
}

/// [`Answer`] as it stands in a body. Words stand for refusals and sources.
#[derive(Serialize, Deserialize)]
enum AnswerMessage {
    Held,
    Brought(String),
    Busy,
    NotStored(String),
    Denied(u16),
    Changed,
    Failed(String),
    Bits(Vec<BlockBits>),
    Kept(Vec<(u64, u64, Option<String>)>),
    Evicted(Vec<Evicted>),
    Refused(String),
    Manifest(Vec<u8>),
    Promised,
}

impl Question {
    /// Serializes the question; `None` if it would be too long.
    pub fn to_bytes(&self) -> Option<Vec<u8>> {
        let digests = |objects: &[ObjectId]| objects.iter().map(|object| object.0).collect();
        let block;
        let message = match self {
            Self::Fill(fill) => {
                block = fill.block_request().to_bytes()?;
                let planned = fill.planned;
                QuestionMessage::Fill {
                    layer: fill.layer.0,
                    pin: fill.pin.map(Pin::to_numbers),
                    planned: planned.map(|planned| (planned.plan, planned.transfer, planned.rate)),
                    block: &block,
                }
            }
            Self::Held(versions) => QuestionMessage::Held(
                versions
                    .iter()
                    .map(|(version, count)| (version.0, *count))
                    .collect(),
            ),
            Self::Pin(pin, objects) => QuestionMessage::Pin(pin.to_numbers(), digests(objects)),
            Self::Unpin(before, objects) => QuestionMessage::Unpin(before.0, digests(objects)),
            Self::Evict(objects) => QuestionMessage::Evict(digests(objects)),
            Self::Manifest(id, offset) => QuestionMessage::Manifest(*id, *offset),
            Self::Promise(read, objects) => {
                let life_ms = read.life.as_millis() as u64;
                let PromiseId { plan, job } = read.id;
                QuestionMessage::Promise((plan, job, read.bytes_per_second, life_ms), digests(objects))
            }
        };
        let bytes = postcard::to_stdvec(&message).expect("memory takes every message");
        (bytes.len() <= QUESTION_BYTES_MAX).then_some(bytes)
    }

    /// Reads a question that another node serialized; the inverse of [`Question::to_bytes`].
    ///
    /// # Errors
    ///
    /// Fails if the bytes are no question, or name more than one may.
    pub fn of_bytes(bytes: &[u8]) -> Result<Self, Malformed> {
        let Ok((message, [])) = postcard::take_from_bytes::<QuestionMessage<'_>>(bytes) else {
            return Err(Malformed);
        };
        let objects = |digests: Vec<[u8; 16]>| {
            let objects = digests.into_iter().map(ObjectId).collect::<Vec<_>>();
            (objects.len() <= NAMES_MAX).then_some(objects).ok_or(Malformed)
        };
        Ok(match message {
            QuestionMessage::Fill {
                layer,
                pin,
                planned,
                block,
            } => {
                let pin = pin.map(Pin::of_numbers);
                let fill = Fill::of(&BlockRequest::of_bytes(block)?, layer, pin)?;
                let planned = planned.map(|(plan, transfer, rate)| PlannedFill { plan, transfer, rate });
                Self::Fill(Box::new(Fill { planned, ..fill }))
            }
            QuestionMessage::Held(versions) => {
                let blocks: u64 = versions.iter().map(|(_, count)| u64::from(*count)).sum();
                if versions.len() > NAMES_MAX || blocks > BLOCKS_MAX {
                    return Err(Malformed);
                }
                let versions = versions.into_iter();
                Self::Held(
                    versions
                        .map(|(version, count)| (VersionId(version), count))
                        .collect(),
                )
            }
            QuestionMessage::Pin(pin, digests) => Self::Pin(Pin::of_numbers(pin), objects(digests)?),
            QuestionMessage::Unpin(before, digests) => Self::Unpin(PinOrder(before), objects(digests)?),
            QuestionMessage::Evict(digests) => Self::Evict(objects(digests)?),
            QuestionMessage::Manifest(id, offset) => Self::Manifest(id, offset),
            QuestionMessage::Promise((plan, job, bytes_per_second, life_ms), digests) => {
                let life = Duration::from_millis(life_ms);
                let read = PromisedRead {
                    id: PromiseId { plan, job },
                    bytes_per_second,
                    life,
                };
                Self::Promise(read, objects(digests)?)
            }
        })
    }
}

impl Pin {
    fn to_numbers(self) -> (u128, u64) {
        (self.order.0, millis_since_1970(self.until))
    }

    fn of_numbers((order, until_ms): (u128, u64)) -> Self {
        // No order lasts that long; a time that far ahead cannot be computed with.
        let until_ms = until_ms.min(u64::from(u32::MAX) * 1000);
        Self {
            order: PinOrder(order),
            until: UNIX_EPOCH + Duration::from_millis(until_ms),
        }
    }
}

impl Fill {
    /// The block as nodes name it to each other. It is not asked for its bytes.
    fn block_request(&self) -> BlockRequest {
        BlockRequest {
            version: Version::clone(&self.version),
            index: self.index,
            part: ByteRange { start: 0, end: 1 },
            obtain: Obtain::Locally,
            caller: self.caller.clone(),
            name: Some(self.name.clone()),
            headers: HeaderMap::new(),
        }
    }

    fn of(request: &BlockRequest, layer: u8, pin: Option<Pin>) -> Result<Self, Malformed> {
        if layer < Layer::L1.0 {
            return Err(Malformed);
        }
        Ok(Self {
            version: Arc::new(request.version.clone()),
            index: request.index,
            layer: Layer(layer),
            pin,
            planned: None,
            caller: request.caller.clone(),
            name: request.name.clone().ok_or(Malformed)?,
        })
    }
}

impl Answer {
    /// Serializes the answer.
    pub fn to_bytes(&self) -> Vec<u8> {
        let message = match self.clone() {
            Self::Filled(outcome) => match outcome {
                Ok(None) => AnswerMessage::Held,
                Ok(Some(source)) => AnswerMessage::Brought(source.as_str().into()),
                Err(NotFilled::Busy) => AnswerMessage::Busy,
                Err(NotFilled::Refused(refusal)) => AnswerMessage::NotStored(refusal.as_str().into()),
                Err(NotFilled::Denied(status)) => AnswerMessage::Denied(status.as_u16()),
                Err(NotFilled::Changed) => AnswerMessage::Changed,
                Err(NotFilled::Failed(why)) => AnswerMessage::Failed(why),
            },
            Self::Held(bits) => AnswerMessage::Bits(bits),
            Self::Kept(kept) => {
                let word = |refusal: Refusal| refusal.as_str().to_owned();
                let kept = kept.into_iter();
                AnswerMessage::Kept(
                    kept.map(|kept| (kept.blocks, kept.bytes, kept.refusal.map(word)))
                        .collect(),
                )
            }
            Self::Evicted(evicted) => AnswerMessage::Evicted(evicted),
            Self::Manifest(bytes) => AnswerMessage::Manifest(bytes.to_vec()),
            Self::Promised => AnswerMessage::Promised,
            Self::Refused(why) => AnswerMessage::Refused(why),
        };
        postcard::to_stdvec(&message).expect("memory takes every message")
    }

    /// Reads an answer; the inverse of [`Answer::to_bytes`].
    ///
    /// # Errors
    ///
    /// Fails if the bytes are no answer, or one of a later release.
    pub fn of_bytes(bytes: &[u8]) -> Result<Self, Malformed> {
        let Ok((message, [])) = postcard::take_from_bytes::<AnswerMessage>(bytes) else {
            return Err(Malformed);
        };
        let refusal = |word: &str| {
            let known = Refusal::ALL.iter().find(|refusal| refusal.as_str() == word);
            known.copied().ok_or(Malformed)
        };
        Ok(match message {
            AnswerMessage::Held => Self::Filled(Ok(None)),
            AnswerMessage::Brought(word) => {
                let sources = [Source::Local, Source::Peer, Source::Tier, Source::Lake];
                let known = sources.into_iter().find(|source| source.as_str() == word);
                Self::Filled(Ok(Some(known.ok_or(Malformed)?)))
            }
            AnswerMessage::Busy => Self::Filled(Err(NotFilled::Busy)),
            AnswerMessage::NotStored(word) => Self::Filled(Err(NotFilled::Refused(refusal(&word)?))),
            AnswerMessage::Denied(status) => {
                let status = StatusCode::from_u16(status).map_err(|_| Malformed)?;
                Self::Filled(Err(NotFilled::Denied(status)))
            }
            AnswerMessage::Changed => Self::Filled(Err(NotFilled::Changed)),
            AnswerMessage::Failed(why) => Self::Filled(Err(NotFilled::Failed(why))),
            AnswerMessage::Bits(bits) => Self::Held(bits),
            AnswerMessage::Kept(kept) => {
                let kept = kept.into_iter().map(|(blocks, bytes, word)| {
                    let refusal = word.as_deref().map(refusal).transpose()?;
                    Ok(Kept {
                        blocks,
                        bytes,
                        refusal,
                    })
                });
                Self::Kept(kept.collect::<Result<_, Malformed>>()?)
            }
            AnswerMessage::Evicted(evicted) => Self::Evicted(evicted),
            AnswerMessage::Manifest(bytes) => Self::Manifest(bytes.into()),
            AnswerMessage::Promised => Self::Promised,
            AnswerMessage::Refused(why) => Self::Refused(why),
        })
    }
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::{any, proptest};

    use super::*;

    fn version() -> Arc<Version> {
        let object = ObjectId([3; 16]);
        Arc::new(Version {
            id: Version::id_of(object, "\"e\"", 1000),
            object,
            etag: "\"e\"".into(),
            size_bytes: 1000,
            block_bytes: 100,
            last_modified: None,
            headers: HeaderMap::new(),
        })
    }

    fn pin() -> Pin {
        Pin {
            order: PinOrder(u128::MAX),
            until: UNIX_EPOCH + Duration::from_millis(1_800_000_000_123),
        }
    }

    #[test]
    fn questions_arrive_as_they_were_asked() {
        let objects = vec![ObjectId([1; 16]), ObjectId([2; 16])];
        let fill = Fill {
            version: version(),
            index: 7,
            layer: Layer(3),
            pin: Some(pin()),
            planned: None,
            caller: CallerName::AccessKey("k".into()),
            name: ObjectName {
                bucket: "b".into(),
                key: b"\xff\n %".as_slice().into(),
                version: None,
            },
        };
        let planned = Fill {
            planned: Some(PlannedFill {
                plan: u128::MAX,
                transfer: 9,
                rate: 7,
            }),
            ..fill.clone()
        };
        let promised = PromisedRead {
            id: PromiseId {
                plan: u128::MAX,
                job: 9,
            },
            bytes_per_second: u64::MAX,
            life: Duration::from_millis(1_234),
        };
        for question in [
            Question::Fill(Box::new(fill)),
            Question::Fill(Box::new(planned)),
            Question::Held(vec![(VersionId([1; 16]), 9)]),
            Question::Pin(pin(), objects.clone()),
            Question::Unpin(PinOrder(u128::MAX), objects.clone()),
            Question::Evict(objects.clone()),
            Question::Manifest(u128::MAX, 7),
            Question::Promise(promised, objects),
        ] {
            let read = Question::of_bytes(&question.to_bytes().unwrap()).unwrap();
            assert_eq!(format!("{read:?}"), format!("{question:?}"));
        }
    }

    #[test]
    fn answers_arrive_as_they_were_given() {
        let kept = Kept {
            blocks: 1,
            bytes: 2,
            refusal: Some(Refusal::PinsFull),
        };
        for answer in [
            Answer::Filled(Ok(None)),
            Answer::Filled(Ok(Some(Source::Lake))),
            Answer::Filled(Err(NotFilled::Busy)),
            Answer::Filled(Err(NotFilled::Refused(Refusal::NoRoom))),
            Answer::Filled(Err(NotFilled::Denied(StatusCode::FORBIDDEN))),
            Answer::Filled(Err(NotFilled::Changed)),
            Answer::Filled(Err(NotFilled::Failed("no".into()))),
            Answer::Held(vec![BlockBits::of(&[0, 9], 10)]),
            Answer::Kept(vec![kept, Kept::default()]),
            Answer::Evicted(vec![Evicted {
                blocks: 1,
                bytes: 2,
                is_pinned: true,
            }]),
            Answer::Manifest(b"b/k\n"[..].into()),
            Answer::Promised,
            Answer::Refused("no".into()),
        ] {
            assert_eq!(Answer::of_bytes(&answer.to_bytes()), Ok(answer));
        }
    }

    #[test]
    fn questions_about_too_much_are_refused() {
        let objects = vec![ObjectId([1; 16]); NAMES_MAX + 1];
        let bytes = Question::Evict(objects).to_bytes().unwrap();
        assert!(Question::of_bytes(&bytes).is_err());
        let blocks = BLOCKS_MAX as u32 / 2 + 1;
        let versions = vec![(VersionId([1; 16]), blocks); 2];
        assert!(Question::of_bytes(&Question::Held(versions).to_bytes().unwrap()).is_err());
    }

    #[test]
    fn bits_are_the_blocks_that_they_were_made_of() {
        let bits = BlockBits::of(&[0, 7, 8, 99], 10);
        let held: Vec<u32> = (0..200).filter(|index| bits.has(*index)).collect();
        assert_eq!(held, [0, 7, 8]);
    }

    proptest! {
        #[test]
        fn any_bytes_are_read_or_refused(bytes in vec(any::<u8>(), 0..200)) {
            let _ = Question::of_bytes(&bytes);
            let _ = Answer::of_bytes(&bytes);
        }
    }
}
