//! Requests in memory, compact: about ten bytes each.
//!
//! Numbers are written as bytes of seven bits, so that small ones take one byte: a time is the step from the
//! previous request, and an offset and a length are left out if they mean the whole object.

use serde::{Deserialize, Serialize};

use super::{Access, Operation};
use crate::clock::Time;

/// A request as it is written.
#[derive(Serialize, Deserialize)]
struct Packed {
    operation: Operation,
    step_ns: u64,
    client: u32,
    object: u32,
    object_bytes: u64,
    part: Option<(u64, u64)>,
}

/// Encodes requests, so that they can be decoded without those before them.
pub(super) fn encode(accesses: &[Access]) -> Box<[u8]> {
    let mut bytes = Vec::with_capacity(12 * accesses.len());
    let mut at = Time::ZERO;
    for access in accesses {
        let is_part = access.offset_bytes != 0 || access.bytes != access.object_bytes;
        let packed = Packed {
            operation: access.operation,
            // Merged logs of several servers are only roughly in order: a step may go backwards, and then
            // wraps.
            step_ns: access.at.0.wrapping_sub(at.0),
            client: access.client,
            object: access.object,
            object_bytes: access.object_bytes,
            part: is_part.then_some((access.offset_bytes, access.bytes)),
        };
        bytes = postcard::to_extend(&packed, bytes).expect("memory takes what is written");
        at = access.at;
    }
    bytes.into_boxed_slice()
}

/// Decodes requests in place of those in `accesses`.
pub(super) fn decode(mut bytes: &[u8], accesses: &mut Vec<Access>) {
    accesses.clear();
    let mut at = Time::ZERO;
    while !bytes.is_empty() {
        let (packed, rest): (Packed, _) =
            postcard::take_from_bytes(bytes).expect("a request that was written is whole");
        bytes = rest;
        at = Time(at.0.wrapping_add(packed.step_ns));
        let (offset_bytes, read_bytes) = packed.part.unwrap_or((0, packed.object_bytes));
        accesses.push(Access {
            at,
            client: packed.client,
            object: packed.object,
            object_bytes: packed.object_bytes,
            offset_bytes,
            bytes: read_bytes,
            operation: packed.operation,
        });
    }
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::{ProptestConfig, any, proptest};

    use super::{decode, encode};
    use crate::clock::Time;
    use crate::trace::{Access, Operation};

    const OPERATIONS: [Operation; 3] = [Operation::Read, Operation::Write, Operation::Delete];

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
            let pieces: Vec<_> = accesses.chunks(piece).map(encode).collect();
            let (mut decoded, mut replayed) = (Vec::new(), Vec::new());
            for piece in pieces {
                decode(&piece, &mut decoded);
                replayed.extend_from_slice(&decoded);
            }
            assert_eq!(replayed, accesses);
        }
    }

    #[test]
    fn a_request_for_a_whole_object_takes_few_bytes() {
        let accesses: Vec<_> = (0..1000)
            .map(|object| access((0, 0, object), (4096, None), 0))
            .collect();
        let bytes = encode(&accesses).len();
        assert!(bytes <= 8 * accesses.len(), "{bytes}");
    }
}
