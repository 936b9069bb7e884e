//! The extensions of groups, in Redis.
//!
//! ```text
//! <prefix>:x:<version>:<group>   a hash for a group; lives as long as its longest-lived field
//!   <name>                         until when, in ms since 1970, a space, and the value
//! ```

use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use redis::{Script, ScriptInvocation};

use super::{Redis, millis};
use crate::extensions::{EXTENSIONS_MAX, Extension, Extensions, bounded};
use crate::{Group, Silent};

/// The scripts about extensions.
#[derive(Debug)]
pub(super) struct ExtensionScripts {
    extend: Script,
    retract: Script,
    extensions: Script,
}

impl ExtensionScripts {
    pub(super) fn new() -> Self {
        let script = |code: &str| Script::new(&[include_str!("extended.lua"), code].concat());
        Self {
            extend: script(include_str!("extend.lua")),
            retract: Script::new(include_str!("retract.lua")),
            extensions: script(include_str!("extensions.lua")),
        }
    }
}

impl Redis {
    fn about_extensions<'a>(&self, script: &'a Script, group: Group) -> ScriptInvocation<'a> {
        let Group { version, number } = group;
        script.key(format!("{}:x:{version}:{number}", self.prefix))
    }
}

impl Extensions for Redis {
    fn extend<'a>(
        &'a self,
        group: Group,
        extension: &'a Extension,
        life: Duration,
    ) -> BoxFuture<'a, Result<bool, Silent>> {
        async move {
            let mut request = self.about_extensions(&self.extensions.extend, group);
            request
                .arg(extension.name())
                .arg(extension.value())
                .arg(millis(bounded(life)))
                .arg(EXTENSIONS_MAX);
            self.link.run(&request).await
        }
        .boxed()
    }

    fn retract<'a>(&'a self, group: Group, name: &'a str) -> BoxFuture<'a, Result<(), Silent>> {
        async move {
            let mut request = self.about_extensions(&self.extensions.retract, group);
            request.arg(name);
            self.link.run(&request).await
        }
        .boxed()
    }

    fn extensions(&self, group: Group) -> BoxFuture<'_, Result<Vec<Extension>, Silent>> {
        async move {
            let request = self.about_extensions(&self.extensions.extensions, group);
            let answer: Vec<(Vec<u8>, Vec<u8>)> = self.link.run(&request).await?;
            // Fields that are not valid extensions are ignored.
            let extensions = answer.iter().filter_map(|(name, value)| {
                let name = std::str::from_utf8(name).ok()?;
                Extension::new(name, value).ok()
            });
            Ok(extensions.collect())
        }
        .boxed()
    }
}
