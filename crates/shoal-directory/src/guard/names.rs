//! Requests of nodes to a directory about names, in bounded time.

use shoal_policy::ObjectId;

use super::{Guard, Kind};
use crate::Silent;
use crate::names::{Change, DirectoryTime, Presence, Promoted, Roll, Token};

impl Guard {
    /// As [`Names::token`](crate::names::Names::token).
    ///
    /// # Errors
    ///
    /// The directory does not answer.
    pub async fn token(&self, name: ObjectId, fresh: Token) -> Result<Option<Token>, Silent> {
        self.requests
            .ask(Kind::Token, self.directory.token(name, fresh))
            .await
    }

    /// As [`Names::begin`](crate::names::Names::begin).
    ///
    /// # Errors
    ///
    /// The directory does not answer. It may have recorded the change.
    pub async fn begin(
        &self,
        name: ObjectId,
        change: Change,
        fresh: Token,
    ) -> Result<Option<Promoted>, Silent> {
        self.requests
            .ask(Kind::Change, self.directory.begin(name, change, fresh))
            .await
    }

    /// As [`Names::end`](crate::names::Names::end).
    ///
    /// # Errors
    ///
    /// The directory does not answer. The change expires by itself.
    pub async fn end(&self, name: ObjectId, change: Change) -> Result<(), Silent> {
        self.requests
            .ask(Kind::Change, self.directory.end(name, change))
            .await
    }

    /// As [`Names::attend`](crate::names::Names::attend).
    ///
    /// # Errors
    ///
    /// The directory does not answer.
    pub async fn attend(&self, mine: Presence, at: Option<DirectoryTime>) -> Result<Roll, Silent> {
        self.requests
            .ask(Kind::Attend, self.directory.attend(mine, at))
            .await
    }
}
