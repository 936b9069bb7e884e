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

use async_trait::async_trait;
use redis::{Script, ScriptInvocation};
use shoal_base::hex;
use shoal_policy::ObjectId;

use super::{Redis, bytes, millis, nodes};
use crate::names::{
    CHANGE_LIFE, Change, DirectoryTime, Names, PRESENCE_LIFE, Presence, Promoted, Roll, SETTLING, Token,
};
use crate::{ENTRY_LIFE, Silent};

impl Redis {
    fn about_name<'a>(&self, script: &'a Script, name: ObjectId) -> ScriptInvocation<'a> {
        script.key(format!("{}:o:{}", self.prefix, hex::text(&name.0)))
    }

    /// Prepares a request that gives the name the token `fresh` if it has none.
    fn settling<'a>(&self, script: &'a Script, name: ObjectId, fresh: Token) -> ScriptInvocation<'a> {
        let mut request = self.about_name(script, name);
        request
            .arg(hex::text(&fresh.0.to_be_bytes()))
            .arg(u8::from(self.needs_replicas))
            .arg(millis(SETTLING))
            .arg(millis(ENTRY_LIFE));
        request
    }
}

#[async_trait]
impl Names for Redis {
    async fn token(&self, name: ObjectId, fresh: Token) -> Result<Option<Token>, Silent> {
        let request = self.settling(&self.scripts.token, name, fresh);
        let answer: String = self.link.run(&request).await?;
        if answer.is_empty() {
            return Ok(None);
        }
        let token = number(&answer).map(Token).ok_or_else(unreadable)?;
        Ok(Some(token))
    }

    async fn begin(&self, name: ObjectId, change: Change, fresh: Token) -> Result<Option<Promoted>, Silent> {
        let mut request = self.settling(&self.scripts.begin, name, fresh);
        request
            .arg(hex::text(&change.0.to_be_bytes()))
            .arg(millis(CHANGE_LIFE));
        let answer: String = self.link.run(&request).await?;
        if answer.is_empty() {
            return Ok(None);
        }
        let server = number(&answer).map(Promoted).ok_or_else(unreadable)?;
        Ok(Some(server))
    }

    async fn end(&self, name: ObjectId, change: Change) -> Result<(), Silent> {
        let mut request = self.about_name(&self.scripts.end, name);
        request.arg(hex::text(&change.0.to_be_bytes()));
        self.link.run(&request).await
    }

    async fn attend(&self, mine: Presence, at: Option<DirectoryTime>) -> Result<Roll, Silent> {
        let mut request = self.scripts.attend.key(format!("{}:p", self.prefix));
        request
            .arg(&bytes(mine.node))
            .arg(hex::text(&mine.rules.to_be_bytes()))
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
}

fn number(digits: &str) -> Option<u64> {
    u64::from_str_radix(digits, 16).ok()
}

fn unreadable() -> Silent {
    Silent("its answer cannot be read".into())
}
