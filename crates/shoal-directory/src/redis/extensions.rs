//! The extensions of groups, in Redis.
//!
//! ```text
//! <prefix>:x:<version>:<group>   a hash for a group; lives as long as its longest-lived field
//!   <name>                         until when, in ms since 1970, a space, and the value
//! ```

use std::time::Duration;

use async_trait::async_trait;
use redis::{Script, ScriptInvocation};

use super::{Redis, millis};
use crate::extensions::{EXTENSIONS_MAX, Extension, Extensions, bounded};
use crate::{Group, Silent};

impl Redis {
    fn about_extensions<'a>(&self, script: &'a Script, group: Group) -> ScriptInvocation<'a> {
        let Group { version, number } = group;
        script.key(format!("{}:x:{version}:{number}", self.prefix))
    }
}

#[async_trait]
impl Extensions for Redis {
    async fn extend(&self, group: Group, extension: &Extension, life: Duration) -> Result<bool, Silent> {
        let mut request = self.about_extensions(&self.scripts.extend, group);
        request
            .arg(extension.name())
            .arg(extension.value())
            .arg(millis(bounded(life)))
            .arg(EXTENSIONS_MAX);
        self.link.run(&request).await
    }

    async fn retract(&self, group: Group, name: &str) -> Result<(), Silent> {
        let mut request = self.about_extensions(&self.scripts.retract, group);
        request.arg(name);
        self.link.run(&request).await
    }

    async fn extensions(&self, group: Group) -> Result<Vec<Extension>, Silent> {
        let request = self.about_extensions(&self.scripts.extensions, group);
        let answer: Vec<(Vec<u8>, Vec<u8>)> = self.link.run(&request).await?;
        // Fields that are not valid extensions are ignored.
        let extensions = answer.iter().filter_map(|(name, value)| {
            let name = std::str::from_utf8(name).ok()?;
            Extension::new(name, value).ok()
        });
        Ok(extensions.collect())
    }
}
