//! The tokens and changes of names, in Redis.
//!
//! ```text
//! <prefix>:o:<name>     a hash for a name; lives ENTRY_LIFE from its last use
//!   t                     its token, 16 hexadecimal digits
//!   r                     the replication id of the server that the rest is from
//!   s                     from when on it is settled, in ms since 1970
//!   c<change>             a change under way, and until when, in ms since 1970
//! <prefix>:p            a hash for all nodes that are present: since when, and their rules
//! ```

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use redis::{Script, ScriptInvocation};
use shoal_policy::ObjectId;

use super::{Redis, bytes, millis, nodes};
use crate::names::{
    CHANGE_LIFE, Change, DirectoryTime, Names, PRESENCE_LIFE, Presence, Promoted, Roll, SETTLING, Token,
};
use crate::{ENTRY_LIFE, Silent};

/// The scripts about names.
#[derive(Debug)]
pub(super) struct NameScripts {
    token: Script,
    begin: Script,
    end: Script,
    attend: Script,
}

impl NameScripts {
    pub(super) fn new() -> Self {
        let script = |code: &str| Script::new(&[include_str!("server.lua"), code].concat());
        Self {
            token: script(include_str!("token.lua")),
            begin: script(include_str!("begin.lua")),
            end: Script::new(include_str!("end.lua")),
            attend: script(include_str!("attend.lua")),
        }
    }
}

impl Redis {
    fn about_name<'a>(&self, script: &'a Script, name: ObjectId) -> ScriptInvocation<'a> {
        script.key(format!("{}:o:{}", self.prefix, hex(&name.0)))
    }

    /// Prepares a request that gives the name the token `fresh` if it has none.
    fn settling<'a>(&self, script: &'a Script, name: ObjectId, fresh: Token) -> ScriptInvocation<'a> {
        let mut request = self.about_name(script, name);
        request
            .arg(hex(&fresh.0.to_be_bytes()))
            .arg(u8::from(self.needs_replicas))
            .arg(millis(SETTLING))
            .arg(millis(ENTRY_LIFE));
        request
    }
}

impl Names for Redis {
    fn token(&self, name: ObjectId, fresh: Token) -> BoxFuture<'_, Result<Option<Token>, Silent>> {
        async move {
            let request = self.settling(&self.names.token, name, fresh);
            let answer: String = self.link.run(&request).await?;
            if answer.is_empty() {
                return Ok(None);
            }
            let token = number(&answer).map(Token).ok_or_else(unreadable)?;
            Ok(Some(token))
        }
        .boxed()
    }

    fn begin(
        &self,
        name: ObjectId,
        change: Change,
        fresh: Token,
    ) -> BoxFuture<'_, Result<Option<Promoted>, Silent>> {
        async move {
            let mut request = self.settling(&self.names.begin, name, fresh);
            request.arg(hex(&change.0.to_be_bytes())).arg(millis(CHANGE_LIFE));
            let answer: String = self.link.run(&request).await?;
            if answer.is_empty() {
                return Ok(None);
            }
            let server = number(&answer).map(Promoted).ok_or_else(unreadable)?;
            Ok(Some(server))
        }
        .boxed()
    }

    fn end(&self, name: ObjectId, change: Change) -> BoxFuture<'_, Result<(), Silent>> {
        async move {
            let mut request = self.about_name(&self.names.end, name);
            request.arg(hex(&change.0.to_be_bytes()));
            self.link.run(&request).await
        }
        .boxed()
    }

    fn attend(&self, mine: Presence, at: Option<DirectoryTime>) -> BoxFuture<'_, Result<Roll, Silent>> {
        async move {
            let mut request = self.names.attend.key(format!("{}:p", self.prefix));
            request
                .arg(&bytes(mine.node))
                .arg(hex(&mine.rules.to_be_bytes()))
                .arg(at.map_or(String::new(), |at| at.0.to_string()))
                .arg(millis(PRESENCE_LIFE));
            let (time, present): (u64, Vec<(Vec<u8>, String)>) = self.link.run(&request).await?;
            let present = present.iter().filter_map(|(node, rules)| {
                let node = *nodes(node).first()?;
                number(rules).map(|rules| Presence { node, rules })
            });
            Ok(Roll {
                at: DirectoryTime(time),
                present: present.collect(),
            })
        }
        .boxed()
    }
}

fn hex(bytes: &[u8]) -> String {
    use std::fmt::Write as _;
    bytes.iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

fn number(digits: &str) -> Option<u64> {
    u64::from_str_radix(digits, 16).ok()
}

fn unreadable() -> Silent {
    Silent("its answer cannot be read".into())
}
