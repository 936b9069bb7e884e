//! What nodes say to each other about dirty objects.
//!
//! ```text
//! POST /dirty/<verb>?ask=<base64 of the rest>
//! ```
//!
//! As for blocks, everything stands in path and query. An answer's body is bytes as
//! [`shoal_base::encoding`] writes them, or nothing.

use http::uri::PathAndQuery;
use shoal_base::encoding::{Malformed, Reader, write_bytes};
use shoal_policy::{NodeId, VersionId};
use shoal_s3::object::{ObjectName, Version};

use super::target;
use crate::dirty::manifest::{Manifest, read_name, write_name};

/// Where the paths of these requests begin.
pub const PREFIX: &str = "/dirty/";

/// What one node says to another. `view` is the digest of what the speaker sees: the listener does what only
/// a home may do when it sees the same.
#[derive(Clone, Debug)]
pub enum Request {
    /// To a home of the name: is there such an object?
    Find {
        /// See above.
        view: u64,
        /// Which.
        name: ObjectName,
    },
    /// To anybody: what do you have of it?
    Held {
        /// Which.
        name: ObjectName,
    },
    /// What is there in a bucket, below a prefix, behind a key, among the names whose first home is `home`?
    List {
        /// See above.
        view: u64,
        /// Whose names.
        home: NodeId,
        /// Bucket.
        bucket: String,
        /// Beginning of the keys.
        prefix: Vec<u8>,
        /// Keys up to this one are known already.
        after: Vec<u8>,
    },
    /// What do you have that I am home to now?
    Sync {
        /// See above.
        view: u64,
        /// Who asks.
        node: NodeId,
        /// Names up to this one are known already.
        after: Option<ObjectName>,
    },
    /// The blocks that went to you under the name of `stand_in` are of this version. Which have you of it?
    Name {
        /// The name until now.
        stand_in: VersionId,
        /// How many went.
        blocks: u32,
        /// The version.
        version: Box<Version>,
    },
    /// Keep this manifest, and the blocks that it places with you.
    Keep(Box<Manifest>),
    /// Forget what you have of it, up to this write of it.
    Drop {
        /// Which.
        name: ObjectName,
        /// The write.
        sequence: u64,
    },
    /// To the home: this object is complete; let it exist.
    Commit {
        /// See above.
        view: u64,
        /// Without a sequence yet.
        manifest: Box<Manifest>,
    },
    /// To the home: do not flush it for a while, I am about to remove it.
    Hold {
        /// See above.
        view: u64,
        /// Which.
        name: ObjectName,
    },
    /// To the home: it is held for nothing.
    Free {
        /// Which.
        name: ObjectName,
    },
    /// To the home: what was held no longer exists.
    Remove {
        /// See above.
        view: u64,
        /// Which.
        name: ObjectName,
        /// The write that was held.
        sequence: u64,
    },
    /// To the home: bring it to the lake now.
    Flush {
        /// See above.
        view: u64,
        /// Which.
        name: ObjectName,
    },
}

impl Request {
    /// What it is called in paths.
    pub const fn verb(&self) -> &'static str {
        match self {
            Self::Find { .. } => "find",
            Self::Held { .. } => "held",
            Self::List { .. } => "list",
            Self::Sync { .. } => "sync",
            Self::Name { .. } => "name",
            Self::Keep(_) => "keep",
            Self::Drop { .. } => "drop",
            Self::Commit { .. } => "commit",
            Self::Hold { .. } => "hold",
            Self::Free { .. } => "free",
            Self::Remove { .. } => "remove",
            Self::Flush { .. } => "flush",
        }
    }

    /// Whether the answer waits for what other nodes say about dirty objects, or for the lake. (What is to be
    /// kept waits for blocks, which are asked for elsewhere.)
    pub const fn waits(&self) -> bool {
        matches!(
            self,
            Self::Commit { .. } | Self::Hold { .. } | Self::Remove { .. } | Self::Flush { .. }
        )
    }

    /// The target of the request; `None` when there is too much to say.
    pub fn target(&self) -> Option<PathAndQuery> {
        target::write(PREFIX, self.verb(), &self.rest())
    }

    fn rest(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(256);
        match self {
            Self::Find { view, name } | Self::Hold { view, name } | Self::Flush { view, name } => {
                out.extend_from_slice(&view.to_le_bytes());
                write_name(&mut out, name);
            }
            Self::Held { name } | Self::Free { name } => write_name(&mut out, name),
            Self::List {
                view,
                home,
                bucket,
                prefix,
                after,
            } => {
                out.extend_from_slice(&view.to_le_bytes());
                out.extend_from_slice(&home.0.to_le_bytes());
                write_bytes(&mut out, bucket.as_bytes());
                write_bytes(&mut out, prefix);
                write_bytes(&mut out, after);
            }
            Self::Sync { view, node, after } => {
                out.extend_from_slice(&view.to_le_bytes());
                out.extend_from_slice(&node.0.to_le_bytes());
                if let Some(after) = after {
                    write_name(&mut out, after);
                }
            }
            Self::Name {
                stand_in,
                blocks,
                version,
            } => {
                out.extend_from_slice(&stand_in.0);
                out.extend_from_slice(&blocks.to_le_bytes());
                version.write(&mut out);
            }
            Self::Keep(manifest) => manifest.write(&mut out),
            Self::Drop { name, sequence } => {
                write_name(&mut out, name);
                out.extend_from_slice(&sequence.to_le_bytes());
            }
            Self::Commit { view, manifest } => {
                out.extend_from_slice(&view.to_le_bytes());
                manifest.write(&mut out);
            }
            Self::Remove { view, name, sequence } => {
                out.extend_from_slice(&view.to_le_bytes());
                write_name(&mut out, name);
                out.extend_from_slice(&sequence.to_le_bytes());
            }
        }
        out
    }

    /// Reads a target that another node wrote.
    pub fn parse(target: &PathAndQuery) -> Result<Self, Malformed> {
        target::parse(PREFIX, target, Self::read)
    }

    fn read(verb: &str, reader: &mut Reader<'_>) -> Result<Self, Malformed> {
        Ok(match verb {
            "find" => Self::Find {
                view: reader.u64()?,
                name: read_name(reader)?,
            },
            "held" => Self::Held {
                name: read_name(reader)?,
            },
            "list" => Self::List {
                view: reader.u64()?,
                home: NodeId(reader.u64()?),
                bucket: reader.text()?.into(),
                prefix: reader.bytes()?.into(),
                after: reader.bytes()?.into(),
            },
            "sync" => Self::Sync {
                view: reader.u64()?,
                node: NodeId(reader.u64()?),
                after: match reader.rest() {
                    [] => None,
                    _ => Some(read_name(reader)?),
                },
            },
            "name" => Self::Name {
                stand_in: VersionId(reader.array()?),
                blocks: reader.u32()?,
                version: Box::new(Version::read(reader)?),
            },
            "keep" => Self::Keep(Box::new(Manifest::read(reader)?)),
            "drop" => Self::Drop {
                name: read_name(reader)?,
                sequence: reader.u64()?,
            },
            "commit" => Self::Commit {
                view: reader.u64()?,
                manifest: Box::new(Manifest::read(reader)?),
            },
            "hold" => Self::Hold {
                view: reader.u64()?,
                name: read_name(reader)?,
            },
            "free" => Self::Free {
                name: read_name(reader)?,
            },
            "remove" => Self::Remove {
                view: reader.u64()?,
                name: read_name(reader)?,
                sequence: reader.u64()?,
            },
            "flush" => Self::Flush {
                view: reader.u64()?,
                name: read_name(reader)?,
            },
            _ => return Err(Malformed),
        })
    }
}

#[cfg(test)]
mod tests {
    use http::uri::PathAndQuery;
    use proptest::prelude::{any, proptest};
    use shoal_policy::{NodeId, VersionId};
    use shoal_s3::object::{ObjectName, Version};

    use super::Request;
    use crate::dirty::homes::target::tests::hears_what_is_said;
    use crate::dirty::manifest::tests::manifest;

    fn name() -> ObjectName {
        manifest("a/b", 1).name
    }

    fn requests() -> Vec<Request> {
        let (view, name) = (7, name());
        let named = name.clone();
        vec![
            Request::Find {
                view,
                name: name.clone(),
            },
            Request::Held { name: name.clone() },
            Request::List {
                view,
                home: NodeId(3),
                bucket: "b".into(),
                prefix: b"a/\xff".into(),
                after: Vec::new(),
            },
            Request::Sync {
                view,
                node: NodeId(9),
                after: None,
            },
            Request::Sync {
                view,
                node: NodeId(9),
                after: Some(named),
            },
            Request::Name {
                stand_in: VersionId([3; 16]),
                blocks: 2,
                version: Box::new(Version::clone(&manifest("k", 5).version)),
            },
            Request::Keep(Box::new(manifest("k", 5))),
            Request::Drop {
                name: name.clone(),
                sequence: 5,
            },
            Request::Commit {
                view,
                manifest: Box::new(manifest("k", 0)),
            },
            Request::Hold {
                view,
                name: name.clone(),
            },
            Request::Free { name: name.clone() },
            Request::Remove {
                view,
                name: name.clone(),
                sequence: 5,
            },
            Request::Flush { view, name },
        ]
    }

    #[test]
    fn what_one_node_says_the_other_one_hears_and_neither_less_nor_more() {
        for said in requests() {
            hears_what_is_said(&said, &said.target().unwrap(), Request::parse);
        }
    }

    #[test]
    fn a_manifest_with_too_much_to_say_is_not_sent() {
        let mut long = manifest("k", 1);
        let value = "x".repeat(50_000);
        long.headers.insert("x-amz-meta-long", value.parse().unwrap());
        assert!(Request::Keep(Box::new(long)).target().is_none());
    }

    proptest! {
        #[test]
        fn any_text_is_a_request_or_refused(text in "/dirty/[a-z]{0,6}(\\?ask=[A-Za-z0-9_-]{0,200})?") {
            if let Ok(target) = text.parse::<PathAndQuery>() {
                let _ = Request::parse(&target);
            }
        }

        #[test]
        fn a_request_with_flipped_bits_is_another_one_or_refused(which in any::<proptest::sample::Index>(), at in any::<proptest::sample::Index>(), bit in 0..8_u8) {
            let requests = requests();
            let mut target = which.get(&requests).target().unwrap().as_str().to_owned().into_bytes();
            let at = at.index(target.len());
            target[at] ^= 1 << bit;
            if let Ok(target) = PathAndQuery::try_from(target) {
                let _ = Request::parse(&target);
            }
        }
    }
}
