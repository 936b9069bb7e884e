//! A packed object is the object that was dirty, and its bytes are proven.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use futures_util::TryStreamExt as _;
use http::{HeaderMap, HeaderName, HeaderValue};
use md5::{Digest as _, Md5};
use proptest::collection::vec;
use proptest::option;
use proptest::prelude::{Just, Strategy, any, prop_assert, prop_assert_eq, proptest};
use proptest::prop_oneof;
use proptest::sample::subsequence;
use shoal_cache::obtain::KeptBytes;
use shoal_net::endpoint::s3::SendOptions;
use shoal_pack::PackBuilder;
use shoal_pack::table::{Packed, Place, Row, Table, TableBuilder};
use shoal_registry::{DirtyVersion, Lifetime};
use shoal_s3::etag;
use shoal_s3::object::ObjectName;
use shoal_s3::range::ByteRange;
use ulid::Ulid;

use super::lab::{BUCKET, Lab};
use crate::dirty::packs::{BytesInMemory, MemberBytes, NotRead, PackedObject, PacksAtLake, description};
use crate::dirty::record::acknowledged::Acknowledged;
use crate::dirty::record::format::encoded;
use crate::dirty::record::manifest::tests::naming;
use crate::dirty::record::manifest::{Manifest, Record};
use crate::dirty::record::part_layout::PartLayout;
use crate::tier::tests::scripted::Answer;
use crate::tier::{ChunkDigester, Damages};

/// A dirty object.
#[derive(Clone, Debug)]
struct Dirty {
    headers: HeaderMap,
    of_reads: HeaderMap,
    modified: SystemTime,
    bytes: Bytes,
    /// The lengths of its parts, each with the distance of its number from that of the part before.
    parts: Vec<(u16, usize)>,
    /// The checksum of each part.
    checksum: Vec<u8>,
}

fn headers() -> impl Strategy<Value = HeaderMap> {
    let any_text = vec(prop_oneof![0x20..0x7f_u8, 0x80..=0xff_u8], 0..20);
    let some = [
        "content-type",
        "cache-control",
        "content-encoding",
        "x-amz-meta-a",
        "x-amz-meta-b",
        "x-amz-checksum-crc32",
    ];
    let values = vec(any_text, some.len());
    (subsequence(some.to_vec(), 0..=some.len()), values).prop_map(|(names, values)| {
        let pairs = names.into_iter().zip(values);
        let pairs = pairs.map(|(name, value)| {
            let value = HeaderValue::from_bytes(&value).unwrap();
            (HeaderName::from_static(name), value)
        });
        pairs.collect()
    })
}

fn object() -> impl Strategy<Value = Dirty> {
    let in_parts = vec((1..3_u16, 0..70_usize), 1..5);
    let parts = option::of((in_parts, prop_oneof![Just(0_usize), Just(4)]));
    let modified = (0..4_000_000_000_u64, 0..1_000_000_000_u32);
    (headers(), headers(), modified, vec(any::<u8>(), 0..200), parts).prop_map(
        |(mut headers, of_reads, (seconds, nanos), bytes, parts)| {
            let (parts, checksum_bytes) = parts.unwrap_or_default();
            let size_bytes = parts.iter().map(|(_, size_bytes)| size_bytes).sum();
            let mut bytes = bytes;
            if !parts.is_empty() {
                bytes.resize(size_bytes, 7);
            }
            if checksum_bytes > 0 {
                headers.insert("x-amz-checksum-algorithm", HeaderValue::from_static("CRC32"));
            }
            Dirty {
                headers,
                of_reads,
                modified: SystemTime::UNIX_EPOCH + Duration::new(seconds, nanos),
                bytes: bytes.into(),
                parts,
                checksum: vec![9; checksum_bytes],
            }
        },
    )
}

fn name(key: &str) -> ObjectName {
    ObjectName {
        bucket: BUCKET.into(),
        key: key.as_bytes().into(),
        version: None,
    }
}

impl Dirty {
    fn of(bytes: &'static [u8]) -> Self {
        Self {
            headers: HeaderMap::new(),
            of_reads: HeaderMap::new(),
            modified: SystemTime::UNIX_EPOCH,
            bytes: Bytes::from_static(bytes),
            parts: Vec::new(),
            checksum: Vec::new(),
        }
    }

    fn manifest(&self) -> Manifest {
        let (mut start, mut number) = (0, 0);
        let parts = self.parts.iter().map(|(distance, size_bytes)| {
            number += distance;
            let range = start..start + size_bytes;
            start = range.end;
            (number, range)
        });
        let parts: Vec<(u16, Range<usize>)> = parts.collect();
        let md5s = parts
            .iter()
            .map(|(_, range)| Md5::digest(&self.bytes[range.clone()]).into());
        let md5s: Vec<[u8; 16]> = md5s.collect();
        let sums: Vec<_> = md5s.iter().map(|md5| (*md5, &*self.checksum)).collect();
        let whole = std::iter::once(0..self.bytes.len()).filter(|_| parts.is_empty());
        let pieces = parts.iter().map(|(_, range)| range.clone()).chain(whole);
        let pieces = pieces.filter(|range| !range.is_empty()).map(|range| {
            let mut digester = ChunkDigester::default();
            digester.update(&self.bytes[range]);
            digester.finish()
        });
        let pieces: Vec<_> = pieces.collect();
        let data = (0..pieces.len()).map(|piece| format!("piece-{piece}").into());
        let data = data.collect();
        let etag = if parts.is_empty() {
            etag::of_md5(&Md5::digest(&self.bytes))
        } else {
            etag::of_parts(&md5s)
        };
        let record = Record {
            writer: "AKWRITER".into(),
            etag: etag.into(),
            modified: self.modified,
            headers: self.headers.clone(),
            of_reads: self.of_reads.clone(),
            part_layout: PartLayout::from_parts(
                parts.iter().map(|(number, range)| (*number, range.len() as u64)),
            ),
            acknowledged: Acknowledged::new(pieces, &sums),
        };
        let dirty = DirtyVersion {
            id: Ulid(7),
            node: 1,
            size_bytes: self.bytes.len() as u64,
            lifetime: Lifetime::Normal,
            data,
            record: encoded(&record),
            is_tombstone: false,
            content: None,
        };
        Manifest::new(&name("data/k"), &dirty, &naming()).unwrap()
    }

    /// Returns the bytes of a pack with this object, and its row.
    fn packed(&self) -> (Vec<Bytes>, Packed) {
        let description = description(&self.manifest(), Ulid(7), 3);
        let mut builder = PackBuilder::default();
        builder.add(b"data/k", &description, self.bytes.clone()).unwrap();
        let pack = builder.finish();
        let row = Packed::new(Ulid(5), &pack.members[0]);
        (pack.pieces, row)
    }
}

/// Returns the row as a table has it.
fn in_table(row: Packed) -> Packed {
    let mut builder = TableBuilder::default();
    builder.add(b"data/k", &Row::Packed(row)).unwrap();
    let place = Place {
        number: 1,
        ..Place::default()
    };
    let table = Table::open(builder.finish(&place).unwrap().bytes).unwrap();
    match table.get(b"data/k").unwrap() {
        Some(Row::Packed(row)) => row,
        other => panic!("{other:?}"),
    }
}

fn read(row: &Packed, packs: &PacksAtLake) -> PackedObject {
    PackedObject::new(name("data/k"), row, packs, &naming()).unwrap()
}

#[test]
fn a_packed_object_is_the_version_that_was_dirty_and_can_be_written_as_it_was() {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let packs = runtime.block_on(Lab::new()).at_lake();
    proptest!(|(dirty in object())| {
        let manifest = dirty.manifest();
        let (pieces, row) = dirty.packed();
        let packed = read(&in_table(row), &packs);
        let (was, is) = (&manifest.version, &packed.version);
        prop_assert_eq!((is.id, is.object, is.size_bytes), (was.id, was.object, was.size_bytes));
        prop_assert_eq!((&is.etag, &is.headers), (&was.etag, &was.headers));
        prop_assert_eq!(is.last_modified, was.last_modified);
        prop_assert_eq!(&**packed.writer(), "AKWRITER");
        let range = packed.range.start as usize..packed.range.end as usize;
        prop_assert_eq!(&pieces.concat()[range], &dirty.bytes[..]);
        prop_assert_eq!(shoal_pack::crc32(&dirty.bytes), packed.crc32);
        let unpacked = packed.manifest(&dirty.bytes, &naming()).unwrap();
        prop_assert_eq!(&unpacked.record, &manifest.record);
        prop_assert_eq!(unpacked.pieces.len(), manifest.pieces.len());
        prop_assert!(!unpacked.is_inline && unpacked.target == manifest.target);
    });
}

/// A packed object at a lake.
struct AtLake {
    lab: Lab,
    damages: Arc<Damages>,
    packed: PackedObject,
    bytes: MemberBytes,
    pack: String,
}

impl AtLake {
    async fn new(bytes: &'static [u8]) -> Self {
        let (lab, damages) = (Lab::new().await, Arc::<Damages>::default());
        let (packs, (pieces, row)) = (lab.at_lake(), Dirty::of(bytes).packed());
        let client = lab.client();
        let put = packs.put_pack(&client, Ulid(5), pieces, SendOptions::default());
        put.await.unwrap();
        let packed = read(&row, &packs);
        let headers = HeaderMap::from_iter([(http::header::REFERER, HeaderValue::from_static("here"))]);
        Self {
            bytes: packed.bytes(lab.client(), headers, &damages),
            packed: packed.clone(),
            pack: String::from_utf8(packed.pack_name.key.to_vec()).unwrap(),
            lab,
            damages,
        }
    }

    async fn read(&self, start: u64, end: u64) -> Result<Vec<u8>, String> {
        let read = self
            .bytes
            .read(ByteRange::new(start, end))
            .try_collect::<Vec<_>>();
        read.await
            .map(|pieces| pieces.concat())
            .map_err(|error| error.to_string())
    }

    fn gets(&self) -> usize {
        self.lab.lake.asked("GET", ".zip")
    }
}

#[tokio::test]
async fn a_range_of_an_object_is_read_from_all_of_it_in_the_name_of_its_caller() {
    let object = AtLake::new(b"hello world").await;
    assert_eq!(object.read(0, 11).await.unwrap(), b"hello world");
    assert_eq!(object.read(6, 9).await.unwrap(), b"wor");
    assert_eq!(object.gets(), 1, "all bytes were read");
    let requests = object.lab.lake.requests();
    let get = requests.last().unwrap();
    let range = get.header("range").unwrap();
    let (first, last) = range.strip_prefix("bytes=").unwrap().split_once('-').unwrap();
    let length = last.parse::<u64>().unwrap() - first.parse::<u64>().unwrap() + 1;
    assert_eq!((length, get.header("referer").as_deref()), (11, Some("here")));
    assert!(object.bytes.id().contains(&Ulid(5).to_string()));
    assert!(object.damages.objects().is_empty());
}

#[tokio::test]
async fn an_empty_object_needs_no_request() {
    let object = AtLake::new(b"").await;
    assert_eq!(object.read(0, 0).await.unwrap(), b"");
    assert_eq!(object.gets(), 0);
}

#[tokio::test]
async fn bytes_that_were_damaged_on_the_way_are_read_again() {
    let object = AtLake::new(b"hello world").await;
    let asked = AtomicUsize::new(0);
    object.lab.lake.fails(move |request| {
        let is_first = asked.fetch_add(1, Ordering::Relaxed) == 0;
        let range = request.header("range").unwrap().replace('=', " ");
        let wrong = || {
            Answer::new(206)
                .header("content-range", &format!("{range}/1000"))
                .body("hello World")
        };
        is_first.then(wrong)
    });
    assert_eq!(object.read(0, 11).await.unwrap(), b"hello world");
    assert_eq!(object.gets(), 2);
    assert!(object.damages.objects().is_empty());
}

#[tokio::test]
async fn a_pack_that_is_damaged_or_gone_is_an_error_and_named_to_operators() {
    let object = AtLake::new(b"hello world").await;
    let flip = |byte: u8| {
        let mut objects = object.lab.lake.objects.lock();
        let pack = objects.get_mut(&object.pack).unwrap();
        let at = pack.windows(5).position(|window| window == b"world").unwrap();
        pack[at] = byte;
    };
    flip(b'W');
    let error = object.read(0, 5).await.unwrap_err();
    assert!(
        error.contains(&object.pack) && error.contains("CRC-32"),
        "{error}"
    );
    assert_eq!(object.gets(), 2);
    assert!(object.damages.objects()[0].0.ends_with(&object.pack));
    object.damages.forget(&object.damages.objects()[0].0);
    object.lab.lake.objects.lock().clear();
    let gone = object.bytes.whole().await.unwrap_err();
    assert!(matches!(gone, NotRead::Gone));
    assert!(
        object.damages.objects().is_empty(),
        "the object may be in another pack"
    );
    object.packed.note_damage(&object.damages, &gone);
    assert!(object.damages.objects()[0].0.ends_with(&object.pack));
}

#[tokio::test]
async fn a_refusal_is_no_damage() {
    let object = AtLake::new(b"hello world").await;
    object.lab.lake.fails(|_| Some(Answer::new(403)));
    assert!(matches!(object.bytes.whole().await, Err(NotRead::Refused(status)) if status == 403));
    assert!(object.gets() == 1 && object.damages.objects().is_empty());
}

#[tokio::test]
async fn bytes_in_memory_are_read_in_ranges() {
    let bytes = BytesInMemory {
        id: "7".into(),
        bytes: Bytes::from_static(b"hello world"),
    };
    let read: Vec<_> = bytes.read(ByteRange::new(6, 9)).try_collect().await.unwrap();
    assert_eq!((bytes.id(), read.concat()), ("7", b"wor".to_vec()));
}
