//! The encoding of messages, which stays the same in every release.

use proptest::collection::vec;
use proptest::prelude::{any, proptest};

use http::HeaderMap;
use shoal_cache::obtain::Obtain;
use shoal_cache::peer::CallerName;
use shoal_s3::object::{ObjectName, Version};
use shoal_s3::range::ByteRange;

use super::*;

fn version() -> Version {
    let object = ObjectId([3; 16]);
    Version {
        id: Version::id_of(object, "\"e\"", 1000),
        object,
        etag: "\"e\"".into(),
        size_bytes: 1000,
        block_bytes: 100,
        last_modified: None,
        headers: HeaderMap::new(),
    }
}

fn pin() -> Pin {
    Pin {
        order: u128::MAX,
        until_ms: 1_800_000_000_123,
    }
}

fn names() -> JobNames {
    JobNames {
        run: "j".into(),
        all_runs: "*".into(),
    }
}

fn observed() -> ObservedJob {
    ObservedJob {
        id: JobId { plan: 1, job: 2 },
        names: names(),
        until_ms: 3,
        forget_ms: 4,
    }
}

fn early() -> EarlyAnswer {
    EarlyAnswer {
        capacity_bytes: 9,
        orders: vec![EarlyCounts {
            brought_bytes: 1,
            used_bytes: 2,
            evicted_bytes: 3,
            used_blocks: 4,
            early_ms: 5,
            first_used_ms: Some(6),
        }],
    }
}

fn fill(pin: Pin) -> Fill {
    Fill {
        layer: 3,
        pin: Some(pin),
        planned: None,
        pack: None,
        block: BlockRequest {
            version: version(),
            index: 7,
            part: ByteRange { start: 0, end: 1 },
            obtain: Obtain::Locally,
            caller: CallerName::AccessKey("k".into()),
            name: Some(ObjectName {
                bucket: "b".into(),
                key: b"\xff\n %".as_slice().into(),
                version: None,
            }),
            headers: HeaderMap::new(),
        },
    }
}

#[test]
fn questions_arrive_as_they_were_asked() {
    let objects = vec![ObjectId([1; 16]), ObjectId([2; 16])];
    let fill = fill(pin());
    let planned = Fill {
        planned: Some(PlannedFill {
            plan: u128::MAX,
            transfer: 9,
            rate: 7,
        }),
        pack: Some(ObjectId([4; 16])),
        ..fill.clone()
    };
    let promised = PromisedRead {
        job: JobId {
            plan: u128::MAX,
            job: 9,
        },
        names: names(),
        rates: JobRates {
            floor: u64::MAX,
            ceiling: Some(u64::MAX),
        },
        life_ms: 1_234,
    };
    for question in [
        Question::Fill(Box::new(fill)),
        Question::Fill(Box::new(planned)),
        Question::Held(vec![([1; 16], 9)]),
        Question::Pin(pin(), objects.clone()),
        Question::Unpin(u128::MAX, objects.clone()),
        Question::Evict(objects.clone()),
        Question::Manifest(u128::MAX, 7),
        Question::Promise(Box::new(promised), objects.clone()),
        Question::Release(objects.clone()),
        Question::Blocks(objects.clone()),
        Question::Pinned(objects),
        Question::Early(vec![u128::MAX]),
        Question::Observe(observed(), vec![ObjectId([5; 16])]),
    ] {
        let read = Question::from_bytes(&question.to_bytes().unwrap()).unwrap();
        assert_eq!(format!("{read:?}"), format!("{question:?}"));
    }
}

#[test]
fn answers_arrive_as_they_were_given() {
    let kept = PinnedBlocks {
        blocks: 1,
        bytes: 2,
        refusal: Some("pins-full".into()),
    };
    for answer in [
        Answer::Bits(vec![BlockBits::new(&[0, 9], 10)]),
        Answer::Kept(vec![kept, PinnedBlocks::default()]),
        Answer::Evicted(vec![Evicted {
            blocks: 1,
            bytes: 2,
            is_pinned: true,
        }]),
        Answer::Manifest(b"b/k\n".to_vec()),
        Answer::Promised(JobBytes { named: 1, unnamed: 2 }),
        Answer::Released(7),
        Answer::Pinned(vec![true, false]),
        Answer::Early(early()),
        Answer::Reads(vec![(BlockBits::new(&[0, 9], 10), 7)]),
        Answer::Refused("no".into()),
    ] {
        assert_eq!(Answer::from_bytes(&answer.to_bytes()), Ok(answer));
    }
    for filled in [
        Ok(None),
        Ok(Some(Source::Lake)),
        Err(NotFilled::Busy),
        Err(NotFilled::from(Refusal::NoRoom)),
        Err(NotFilled::Denied(StatusCode::FORBIDDEN)),
        Err(NotFilled::Changed),
        Err(NotFilled::Failed("no".into())),
    ] {
        let bytes = Answer::from(filled.clone()).to_bytes();
        assert_eq!(Answer::from_bytes(&bytes).unwrap().into_filled(), filled);
    }
}

#[test]
fn messages_have_the_same_bytes_in_every_release() {
    let objects = vec![ObjectId([7; 16])];
    let seven = [7; 16];
    let promised = PromisedRead {
        job: JobId { plan: 1, job: 2 },
        names: names(),
        rates: JobRates {
            floor: 300,
            ceiling: Some(5),
        },
        life_ms: 4,
    };
    let pin = Pin {
        order: 1,
        until_ms: 2,
    };
    for (question, start, ends_in_object) in [
        (Question::Held(vec![([7; 16], 9)]), &[1, 1][..], false),
        (Question::Pin(pin, objects.clone()), &[2, 1, 2, 1], true),
        (Question::Unpin(1, objects.clone()), &[3, 1, 1], true),
        (Question::Evict(objects.clone()), &[4, 1], true),
        (Question::Manifest(1, 2), &[5, 1, 2], false),
        (Question::Early(vec![3]), &[7, 1, 3], false),
        (
            Question::Observe(observed(), vec![ObjectId(seven)]),
            &[8, 1, 2, 1, b'j', 1, b'*', 3, 4, 1],
            true,
        ),
        (Question::Release(objects.clone()), &[9, 1], true),
        (Question::Blocks(objects.clone()), &[10, 1], true),
        (Question::Pinned(objects.clone()), &[11, 1], true),
        (
            Question::Promise(Box::new(promised), objects.clone()),
            &[6, 1, 2, 1, b'j', 1, b'*', 0xac, 2, 1, 5, 4, 1],
            true,
        ),
    ] {
        let bytes = question.to_bytes().unwrap();
        assert!(bytes.starts_with(start), "{question:?}: {bytes:?}");
        assert_eq!(bytes.ends_with(&seven), ends_in_object, "{question:?}");
    }
    let fill = Fill {
        planned: Some(PlannedFill {
            plan: 1,
            transfer: 2,
            rate: 3,
        }),
        pack: Some(ObjectId(seven)),
        ..fill(pin)
    };
    let block = fill.block.to_bytes().unwrap();
    let bytes = Question::Fill(Box::new(fill)).to_bytes().unwrap();
    assert!(
        bytes.starts_with(&[0, 3, 1, 1, 2, 1, 1, 2, 3, 1, 7, 7]),
        "{bytes:?}"
    );
    assert!(bytes.ends_with(&block), "{bytes:?}");
    let kept = PinnedBlocks {
        blocks: 1,
        bytes: 2,
        refusal: Some("x".into()),
    };
    for (answer, bytes) in [
        (Answer::Held, &[0][..]),
        (Answer::Brought("lake".into()), &[1, 4, b'l', b'a', b'k', b'e']),
        (Answer::Busy, &[2]),
        (Answer::NotStored("x".into()), &[3, 1, b'x']),
        (Answer::Denied(403), &[4, 0x93, 3]),
        (Answer::Changed, &[5]),
        (Answer::Failed("x".into()), &[6, 1, b'x']),
        (Answer::Bits(vec![BlockBits::new(&[0, 9], 10)]), &[7, 1, 2, 1, 2]),
        (Answer::Kept(vec![kept]), &[8, 1, 1, 2, 1, 1, b'x']),
        (
            Answer::Evicted(vec![Evicted {
                blocks: 1,
                bytes: 2,
                is_pinned: true,
            }]),
            &[9, 1, 1, 2, 1],
        ),
        (Answer::Refused("x".into()), &[10, 1, b'x']),
        (Answer::Manifest(vec![9, 8]), &[11, 2, 9, 8]),
        (Answer::Promised(JobBytes { named: 1, unnamed: 2 }), &[12, 1, 2]),
        (Answer::Early(early()), &[13, 9, 1, 1, 2, 3, 4, 5, 1, 6]),
        (
            Answer::Reads(vec![(BlockBits::new(&[0, 9], 10), 7)]),
            &[14, 1, 2, 1, 2, 7],
        ),
        (Answer::Released(7), &[15, 7]),
        (Answer::Pinned(vec![true, false]), &[16, 2, 1, 0]),
    ] {
        assert_eq!(answer.to_bytes(), bytes, "{answer:?}");
    }
}

#[test]
fn questions_about_too_much_are_refused() {
    let objects = vec![ObjectId([1; 16]); NAMES_MAX + 1];
    let bytes = Question::Evict(objects).to_bytes().unwrap();
    assert!(Question::from_bytes(&bytes).is_err());
    let blocks = BLOCKS_MAX as u32 / 2 + 1;
    let versions = vec![([1; 16], blocks); 2];
    assert!(Question::from_bytes(&Question::Held(versions).to_bytes().unwrap()).is_err());
}

#[test]
fn bits_are_the_blocks_that_they_were_made_of() {
    let bits = BlockBits::new(&[0, 7, 8, 99], 10);
    let held: Vec<u32> = (0..200).filter(|index| bits.has(*index)).collect();
    assert_eq!(held, [0, 7, 8]);
    let mut all = BlockBits::new(&[1], 3);
    all.add(&bits);
    assert_eq!((all.count(), all.has(1), all.has(8)), (4, true, true));
}

proptest! {
    #[test]
    fn any_bytes_are_read_or_refused(bytes in vec(any::<u8>(), 0..200)) {
        let _ = Question::from_bytes(&bytes);
        let _ = Answer::from_bytes(&bytes);
    }
}
