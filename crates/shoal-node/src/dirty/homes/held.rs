//! The hold on a dirty object: it is not flushed until the hold is released or the object removed.

use shoal_s3::object::ObjectName;

use super::directory::Directory;
use super::messenger::Answer;
use super::request::Request;
use crate::dirty::AuthorityUnreachable;

/// The hold on one write of an object. It is released when dropped, so a client that hangs up leaves nothing
/// held.
#[derive(Debug)]
#[must_use]
pub struct Held {
    directory: Directory,
    name: ObjectName,
    sequence: u64,
    is_over: bool,
}

impl Directory {
    /// Keeps a dirty object from being flushed; a flush under way breaks off, or has ended. `None`: nothing
    /// is dirty.
    pub(crate) async fn hold(&self, name: &ObjectName) -> Result<Option<Held>, AuthorityUnreachable> {
        let (directory, name) = (self.clone(), name.clone());
        // A task of its own: if its caller goes away while the home decides, the hold is dropped when it is
        // there.
        let held = tokio::spawn(async move { directory.hold_now(name).await });
        held.await.unwrap_or(Err(AuthorityUnreachable))
    }

    async fn hold_now(self, name: ObjectName) -> Result<Option<Held>, AuthorityUnreachable> {
        let hold = |view| Request::Hold {
            view,
            name: name.clone(),
        };
        match self.decide(&name, hold).await? {
            Answer::Done(body) => {
                let sequence = body.first_chunk().ok_or(AuthorityUnreachable)?;
                Ok(Some(Held {
                    sequence: u64::from_le_bytes(*sequence),
                    directory: self,
                    name,
                    is_over: false,
                }))
            }
            Answer::Nothing => Ok(None),
            _ => Err(AuthorityUnreachable),
        }
    }

    async fn release(self, name: ObjectName) {
        // A home that does not hear it releases the hold after a while.
        let _ = self.decide(&name, |_| Request::Free { name: name.clone() }).await;
    }
}

impl Held {
    /// The name of the object.
    pub fn name(&self) -> &ObjectName {
        &self.name
    }

    /// Removes the object. Returns `false` if it was no longer held, and is at the lake or overwritten.
    pub async fn remove(mut self) -> Result<bool, AuthorityUnreachable> {
        let remove = |view| Request::Remove {
            view,
            name: self.name.clone(),
            sequence: self.sequence,
        };
        let is_removed = match self.directory.decide(&self.name, remove).await? {
            Answer::Done(_) => true,
            Answer::Nothing => false,
            _ => return Err(AuthorityUnreachable),
        };
        self.is_over = true;
        Ok(is_removed)
    }

    /// Releases the hold: the object stays, and may be flushed again.
    pub async fn release(mut self) {
        self.is_over = true;
        let released = self.directory.clone().release(self.name.clone());
        // A task of its own, as for one that is dropped.
        let _ = tokio::spawn(released).await;
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        // A node that stops no longer runs tasks, and holds nothing either.
        if let Ok(runtime) = tokio::runtime::Handle::try_current()
            && !self.is_over
        {
            runtime.spawn(self.directory.clone().release(self.name.clone()));
        }
    }
}
