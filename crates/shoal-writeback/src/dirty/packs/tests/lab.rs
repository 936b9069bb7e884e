//! A lake in memory with faults, a registry, and nodes that have maps.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use md5::{Digest as _, Md5};
use parking_lot::Mutex;
use percent_encoding::percent_decode_str;
use shoal_base::secret::Secret;
use shoal_cache::write::{PackConfig, PackSettings};
use shoal_net::clock;
use shoal_net::endpoint::s3::{S3Client, SendOptions};
use shoal_net::endpoint::{Endpoint, LakeConfig, NodeCredentials};
use shoal_net::limits::Limits;
use shoal_pack::table::{Listed, Packed, Place, Row, TableBuilder};
use shoal_pack::{Description, PackBuilder};
use shoal_registry::MapName;
use shoal_registry::engine::embedded::Embedded;
use shoal_registry::names::Names;
use shoal_registry::roots::{MapTable, Purpose, Roots};
use shoal_registry::session::Session;
use shoal_s3::identity::{Caller, Identity};
use shoal_store::{Store, StoreConfig};
use tempfile::TempDir;
use ulid::Ulid;

use crate::dirty::packs::{MapParts, PackMap, PacksAtLake, TableFiles};
use crate::tier::Damages;
use crate::tier::tests::scripted::{Answer, Asked, ScriptedStore};

/// The bucket and the prefix of the rule.
pub(crate) const BUCKET: &str = "b";
pub(crate) const PREFIX: &[u8] = b"data/";

/// Objects by their keys.
pub(crate) type Objects = Arc<Mutex<BTreeMap<String, Vec<u8>>>>;
type Fault = Arc<dyn Fn(&Asked) -> Option<Answer> + Send + Sync>;

/// A lake that keeps the objects of one bucket in memory.
pub(crate) struct MemoryLake {
    /// By their keys.
    pub(crate) objects: Objects,
    fault: Arc<Mutex<Option<Fault>>>,
    server: ScriptedStore,
}

/// A lake and a registry.
pub(crate) struct Lab {
    pub(crate) folder: TempDir,
    pub(crate) lake: MemoryLake,
    pub(crate) endpoint: Arc<Endpoint>,
    pub(crate) roots: Roots,
    pub(crate) fence: Duration,
}

impl MemoryLake {
    async fn start() -> Self {
        let (objects, fault) = (Objects::default(), Arc::<Mutex<Option<Fault>>>::default());
        let server = {
            let (objects, fault) = (Arc::clone(&objects), Arc::clone(&fault));
            ScriptedStore::start(move |asked| {
                // A fault may ask the lake itself.
                let fault = fault.lock().clone();
                let faulty = fault.and_then(|fault| fault(asked));
                faulty.unwrap_or_else(|| answer(&objects, asked))
            })
        };
        Self {
            objects,
            fault,
            server: server.await,
        }
    }

    /// Answers as `fault` does from now on, unless it returns `None`.
    pub(crate) fn fails(&self, fault: impl Fn(&Asked) -> Option<Answer> + Send + Sync + 'static) {
        *self.fault.lock() = Some(Arc::new(fault));
    }

    /// Lists these objects from now on, as a lake that lists late.
    pub(crate) fn lists(&self, objects: &Objects) {
        let objects = Arc::clone(objects);
        self.fails(move |asked| {
            let is_list = asked.target.contains("list-type");
            is_list.then(|| answer(&objects, asked))
        });
    }

    /// Answers as a lake does from now on.
    pub(crate) fn works(&self) {
        *self.fault.lock() = None;
    }

    /// Returns the requests received so far with this method, and these characters in their target.
    pub(crate) fn asked(&self, method: &str, target: &str) -> usize {
        let asked = self.requests();
        let is_it = |asked: &&Asked| asked.method == method && asked.target.contains(target);
        asked.iter().filter(is_it).count()
    }

    pub(crate) fn requests(&self) -> Vec<Asked> {
        self.server.asked()
    }
}

/// Carries a request out.
pub(crate) fn answer(objects: &Objects, asked: &Asked) -> Answer {
    let path = asked
        .path()
        .strip_prefix("/b")
        .expect("the bucket is the only one");
    let key = percent_decode_str(path.trim_start_matches('/'))
        .decode_utf8()
        .unwrap();
    let mut objects = objects.lock();
    let date = httpdate::fmt_http_date(clock::utc_now());
    let answer = Answer::new(200).header("date", &date);
    match &*asked.method {
        "GET" if key.is_empty() => answer.body(listing(&objects, &asked.target)),
        "PUT" => {
            let data = asked.data();
            let md5 = asked.header("content-md5").expect("a digest is sent");
            if md5 != STANDARD.encode(Md5::digest(&data)) {
                return answer.status(400).body("<Error><Code>BadDigest</Code></Error>");
            }
            objects.insert(key.into_owned(), data);
            answer
        }
        "DELETE" => {
            objects.remove(&*key);
            answer.status(204)
        }
        _ => match (objects.get(&*key), asked.header("range")) {
            (None, _) => answer.status(404),
            (Some(data), _) if asked.method == "HEAD" => {
                answer.header("content-length", &data.len().to_string())
            }
            (Some(data), None) => answer.body(data.clone()),
            (Some(data), Some(range)) => {
                let (first, last) = range.strip_prefix("bytes=").unwrap().split_once('-').unwrap();
                let (first, last): (usize, usize) = (first.parse().unwrap(), last.parse().unwrap());
                match data.get(first..=last) {
                    None => answer.status(416),
                    Some(part) => {
                        let range = format!("bytes {first}-{last}/{}", data.len());
                        answer.status(206).header("content-range", &range).body(part)
                    }
                }
            }
        },
    }
}

/// Two objects a page, so that listings have pages.
fn listing(objects: &BTreeMap<String, Vec<u8>>, target: &str) -> String {
    let query = |name: &str| {
        let parameters = target.split('?').nth(1).unwrap_or_default().split('&');
        let value = parameters
            .filter_map(|parameter| parameter.split_once('='))
            .find(|(key, _)| *key == name);
        value.map(|(_, value)| percent_decode_str(value).decode_utf8().unwrap().into_owned())
    };
    let (prefix, after) = (
        query("prefix").unwrap_or_default(),
        query("start-after").unwrap_or_default(),
    );
    let wanted = objects
        .iter()
        .filter(|(key, _)| key.starts_with(&prefix) && **key > after);
    let contents = wanted.take(2).map(|(key, data)| {
        let (size_bytes, modified) = (data.len(), "2020-01-01T00:00:00.000Z");
        format!(
            "<Contents><Key>{key}</Key><Size>{size_bytes}</Size><LastModified>{modified}</LastModified></Contents>"
        )
    });
    let contents: String = contents.collect();
    format!("<ListBucketResult><IsTruncated>false</IsTruncated>{contents}</ListBucketResult>")
}

impl Lab {
    pub(crate) async fn new() -> Self {
        Self::fenced(Duration::from_mins(1)).await
    }

    /// A lab in which requests may be carried out for this time.
    pub(crate) async fn fenced(fence: Duration) -> Self {
        let (folder, lake) = (TempDir::new().unwrap(), MemoryLake::start().await);
        let config = LakeConfig {
            endpoint: lake.server.url(),
            access_key: Some("access".into()),
            secret_key: Some(Secret::new("secret")),
            ..LakeConfig::default()
        };
        let credentials = NodeCredentials::of_config(&config).unwrap();
        let endpoint = Endpoint::new(&config, &Limits::default(), credentials).unwrap();
        let engine = Arc::new(Embedded::open(&folder.path().join("registry")).unwrap());
        let session = Arc::new(Session::new(engine.clone(), 1, Duration::from_mins(1)));
        session.keep().await.unwrap();
        Self {
            folder,
            lake,
            endpoint: Arc::new(endpoint),
            roots: Roots::new(Names::new(engine, 1, fence), session),
            fence,
        }
    }

    pub(crate) fn map_name() -> MapName {
        MapName::new(BUCKET, PREFIX)
    }

    pub(crate) fn at_lake(&self) -> PacksAtLake {
        let keeper = Caller::Identity(Arc::new(Identity::new("keeper", "secret")));
        PacksAtLake::new(Arc::clone(&self.endpoint), BUCKET, PREFIX, keeper)
    }

    /// The client of a caller.
    pub(crate) fn client(&self) -> S3Client {
        let caller = Caller::Identity(Arc::new(Identity::new("caller", "secret")));
        S3Client::of_caller(&self.endpoint, &caller)
    }

    /// Opens the disk of a new node.
    pub(crate) fn disk(&self, node: &str) -> Arc<Store> {
        let config = StoreConfig {
            path: self.folder.path().join(node),
            capacity_bytes: 16 << 20,
            block_bytes: 64 << 10,
            ..StoreConfig::default()
        };
        Store::open(&config, 1 << 20, 1).unwrap().0
    }

    /// Returns the map as a node with this disk opens it when it starts.
    pub(crate) fn map(&self, disk: &Arc<Store>) -> Arc<PackMap> {
        let files = TableFiles::open(disk, disk.node_folder().join("packs/map")).unwrap();
        let settings = PackSettings {
            bucket: BUCKET.into(),
            key_prefix: PREFIX.into(),
            config: PackConfig {
                below_bytes: PackConfig::BELOW_BYTES,
                pack_bytes: PackConfig::PACK_BYTES,
                idle: PackConfig::IDLE,
                keeper: "keeper".into(),
            },
        };
        let parts = MapParts {
            settings: Arc::new(settings),
            roots: self.roots.clone(),
            at_lake: self.at_lake(),
            files,
            fence: self.fence,
            damages: Arc::<Damages>::default(),
        };
        Arc::new(PackMap::new(Self::map_name(), parts))
    }

    /// Writes a table before all others to the lake, and commits it.
    pub(crate) async fn commit(&self, rows: &[(&str, Row)]) -> Listed {
        let map = Self::map_name();
        self.roots.create(&map).await.unwrap();
        let reserved = self.roots.reserve(&map, Purpose::Packing).await.unwrap();
        let older = &reserved.root().tables;
        let listed = self.put_table(reserved.number(), rows, older).await;
        let tables = [&[of_root(&listed)], &older[..]].concat();
        self.roots.commit(&reserved, tables).await.unwrap();
        listed
    }

    /// Writes a table to the lake.
    pub(crate) async fn put_table(&self, number: u64, rows: &[(&str, Row)], older: &[MapTable]) -> Listed {
        let mut table = TableBuilder::default();
        for (key, row) in rows {
            table.add(key.as_bytes(), row).unwrap();
        }
        let place = Place {
            number,
            newer: Vec::new(),
            older: older.iter().map(of_table).collect(),
        };
        let table = table.finish(&place).unwrap();
        let packs = self.at_lake();
        let put = packs.put_table(number, vec![table.bytes], SendOptions::default());
        put.await.unwrap();
        table.listed
    }
}

/// The table as a root lists it.
pub(crate) fn of_root(listed: &Listed) -> MapTable {
    MapTable {
        number: listed.number,
        size_bytes: listed.size_bytes,
        checksum: listed.checksum,
    }
}

fn of_table(table: &MapTable) -> Listed {
    Listed {
        number: table.number,
        size_bytes: table.size_bytes,
        checksum: table.checksum,
    }
}

/// The row of an object with these bytes, in a pack of its own.
pub(crate) fn row(key: &str, bytes: &'static [u8]) -> Row {
    let description = Description {
        sequence: 1,
        id: Ulid(7),
        writer: "AK".into(),
        modified: std::time::SystemTime::UNIX_EPOCH,
        etag: shoal_s3::etag::of_md5(&Md5::digest(bytes)),
        headers: http::HeaderMap::new(),
        of_reads: http::HeaderMap::new(),
        parts: Vec::new(),
    };
    let mut pack = PackBuilder::default();
    pack.add(key.as_bytes(), &description, Bytes::from_static(bytes))
        .unwrap();
    Row::Packed(Packed::new(Ulid(9), &pack.finish().members[0]))
}
