//! Requests in memory, compact: about ten bytes each.
//!
//! Each field is written as seven bits per byte, least significant first, and left out if it is
//! redundant: a time or a client equal to that of the previous request, or an offset and a length that mean
//! the whole object.

use super::{Access, Operation};
use crate::clock::Time;

/// A byte precedes each request: its operation, and the fields that follow.
const OPERATION: u8 = 0b11;
const IS_PART: u8 = 1 << 2;
const NEW_CLIENT: u8 = 1 << 3;
const NEW_TIME: u8 = 1 << 4;

const OPERATIONS: [Operation; 3] = [Operation::Read, Operation::Write, Operation::Delete];

/// Requests in pieces, each of which can be decoded without the previous ones.
#[derive(Debug, Default)]
pub(super) struct PackedTrace {
    pieces: Vec<Box<[u8]>>,
    bytes: usize,
}

impl PackedTrace {
    /// Adds requests. Returns true if the tape is within `bytes_max`.
    pub(super) fn record(&mut self, accesses: &[Access], bytes_max: usize) -> bool {
        let piece = encode(accesses);
        self.bytes += piece.len();
        self.pieces.push(piece);
        self.bytes <= bytes_max
    }

    /// Replays the requests in the chunks in which they were recorded.
    pub(super) fn replay(&self, mut take: impl FnMut(&[Access])) {
        let mut accesses = Vec::new();
        for piece in &self.pieces {
            decode(piece, &mut accesses);
            take(&accesses);
        }
    }
}

fn encode(accesses: &[Access]) -> Box<[u8]> {
    let mut bytes = Vec::with_capacity(12 * accesses.len());
    let (mut client, mut at) = (0, Time::ZERO);
    for access in accesses {
        let is_part = access.offset_bytes != 0 || access.bytes != access.object_bytes;
        let flag = |is_set, flag| if is_set { flag } else { 0 };
        bytes.push(
            access.operation as u8
                | flag(is_part, IS_PART)
                | flag(access.client != client, NEW_CLIENT)
                | flag(access.at != at, NEW_TIME),
        );
        put(&mut bytes, u64::from(access.object));
        put(&mut bytes, access.object_bytes);
        if is_part {
            put(&mut bytes, access.offset_bytes);
            put(&mut bytes, access.bytes);
        }
        if access.client != client {
            put(&mut bytes, u64::from(access.client));
        }
        if access.at != at {
            // Merged logs of several servers are only roughly in order: a step may go backwards, and then
            // wraps.
            put(&mut bytes, access.at.0.wrapping_sub(at.0));
        }
        (client, at) = (access.client, access.at);
    }
    bytes.into_boxed_slice()
}

fn decode(mut bytes: &[u8], accesses: &mut Vec<Access>) {
    accesses.clear();
    let (mut client, mut at) = (0, Time::ZERO);
    while let [head, rest @ ..] = bytes {
        bytes = rest;
        let object = number(&mut bytes);
        let object_bytes = get(&mut bytes);
        let (offset_bytes, read_bytes) = if head & IS_PART == 0 {
            (0, object_bytes)
        } else {
            (get(&mut bytes), get(&mut bytes))
        };
        if head & NEW_CLIENT != 0 {
            client = number(&mut bytes);
        }
        if head & NEW_TIME != 0 {
            at = Time(at.0.wrapping_add(get(&mut bytes)));
        }
        accesses.push(Access {
            at,
            client,
            object,
            object_bytes,
            offset_bytes,
            bytes: read_bytes,
            operation: OPERATIONS[usize::from(head & OPERATION)],
        });
    }
}

fn put(bytes: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        bytes.push(value as u8 | 0x80);
        value >>= 7;
    }
    bytes.push(value as u8);
}

fn get(bytes: &mut &[u8]) -> u64 {
    let (mut value, mut shift) = (0, 0);
    loop {
        let (&byte, rest) = bytes.split_first().expect("a value that was written ends");
        *bytes = rest;
        value |= u64::from(byte & 0x7f) << shift;
        if byte < 0x80 {
            return value;
        }
        shift += 7;
    }
}

fn number(bytes: &mut &[u8]) -> u32 {
    u32::try_from(get(bytes)).expect("it was written from 32 bits")
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::{ProptestConfig, any, proptest};

    use super::{OPERATIONS, PackedTrace};
    use crate::clock::Time;
    use crate::trace::Access;

    fn access(
        (at, client, object): (u64, u32, u32),
        (object_bytes, part): (u64, Option<(u64, u64)>),
        operation: usize,
    ) -> Access {
        let (offset_bytes, bytes) = part.unwrap_or((0, object_bytes));
        Access {
            at: Time(at),
            client,
            object,
            object_bytes,
            offset_bytes,
            bytes,
            operation: OPERATIONS[operation],
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, cases: 64, ..ProptestConfig::default() })]

        #[test]
        fn recorded_accesses_replay_unchanged(
            fields in vec((any::<(u64, u32, u32)>(), any::<(u64, Option<(u64, u64)>)>(), 0..3_usize), 0..50),
            piece in 1..20_usize,
        ) {
            let accesses: Vec<_> = fields.into_iter().map(|(who, what, how)| access(who, what, how)).collect();
            let mut packed = PackedTrace::default();
            for accesses in accesses.chunks(piece) {
                assert!(packed.record(accesses, usize::MAX));
            }
            let mut replayed = Vec::new();
            packed.replay(|accesses| replayed.extend_from_slice(accesses));
            assert_eq!(replayed, accesses);
        }
    }

    #[test]
    fn a_request_for_a_whole_object_by_the_same_client_takes_few_bytes() {
        let accesses: Vec<_> = (0..1000)
            .map(|object| access((0, 0, object), (4096, None), 0))
            .collect();
        let mut packed = PackedTrace::default();
        assert!(!packed.record(&accesses, 1000));
        assert!(packed.bytes <= 5 * accesses.len(), "{}", packed.bytes);
    }
}
