//! Requests of nodes to a directory about extensions, in bounded time.

use std::time::Duration;

use super::{Guard, Kind};
use crate::extensions::Extension;
use crate::{Group, Silent};

impl Guard {
    /// As [`Extensions::extend`](crate::extensions::Extensions::extend).
    ///
    /// # Errors
    ///
    /// The directory does not answer. It may have stored the extension.
    pub async fn extend(&self, group: Group, extension: &Extension, life: Duration) -> Result<bool, Silent> {
        let noted = self.directory.extend(group, extension, life);
        self.requests.ask(Kind::Extension, noted).await
    }

    /// As [`Extensions::retract`](crate::extensions::Extensions::retract).
    ///
    /// # Errors
    ///
    /// The directory does not answer. The extension expires by itself.
    pub async fn retract(&self, group: Group, name: &str) -> Result<(), Silent> {
        let forgotten = self.directory.retract(group, name);
        self.requests.ask(Kind::Extension, forgotten).await
    }

    /// As [`Extensions::extensions`](crate::extensions::Extensions::extensions).
    ///
    /// # Errors
    ///
    /// The directory does not answer.
    pub async fn extensions(&self, group: Group) -> Result<Vec<Extension>, Silent> {
        let noted = self.directory.extensions(group);
        self.requests.ask(Kind::Extension, noted).await
    }
}
