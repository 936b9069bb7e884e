//! Asking about dirty objects, wherever they are at home.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use shoal_policy::NodeId;
use shoal_s3::object::ObjectName;

use super::home::Home;
use super::messenger::{Answer, Unheard};
use super::page::Page;
use super::request::Request;
use super::view::View;
use crate::cooperation::Cooperation;
use crate::dirty::manifest::Manifest;
use crate::dirty::{AuthorityUnreachable, FlushFailed, Found};

/// While the members of the cluster change, a home decides nothing; most often that is over in less.
const UNSETTLED_LOOKS: u32 = 30;
const UNSETTLED_PAUSE: Duration = Duration::from_millis(100);

/// Finds the home of a name, and asks it.
#[derive(Clone)]
pub(crate) struct Directory(pub(in crate::dirty) Arc<Home>);

impl std::fmt::Debug for Directory {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Directory")
    }
}

impl Directory {
    /// Finds the dirty object of a name. Its home answers; when the home is out of reach, the next one does;
    /// while the members change, all of them together do.
    pub(crate) async fn find(&self, name: &ObjectName) -> Result<Found, AuthorityUnreachable> {
        let home = &self.0;
        let view = View::of(&home.cooperation);
        let request = Request::Find {
            view: view.digest,
            name: name.clone(),
        };
        for node in view.homes(name.id(&home.lake)) {
            match self.ask(node, request.clone()).await {
                Ok(Answer::Done(body)) => return manifest(&body).map(Found::Dirty),
                Ok(Answer::Lost(body)) => return manifest(&body).map(Found::Lost),
                Ok(Answer::Nothing) => return Ok(Found::Nothing),
                Ok(_) | Err(_) => {}
            }
        }
        self.find_anywhere(&view, name).await
    }

    /// Asks everybody. One who is silent may be the only one who knows, unless somebody else has told.
    async fn find_anywhere(&self, view: &View, name: &ObjectName) -> Result<Found, AuthorityUnreachable> {
        let request = Request::Held { name: name.clone() };
        let answers = view.members().iter().map(|node| self.ask(*node, request.clone()));
        let (mut latest, mut gone, mut silent) = (None::<Arc<Manifest>>, 0, false);
        for answer in join_all(answers).await {
            let page = answer
                .ok()
                .and_then(|answer| Page::read(&answer.into_body()).ok());
            let Some(page) = page else {
                silent = true;
                continue;
            };
            gone = page
                .gone
                .iter()
                .map(|(_, sequence)| *sequence)
                .fold(gone, u64::max);
            for manifest in page.manifests {
                if latest
                    .as_ref()
                    .is_none_or(|latest| latest.sequence < manifest.sequence)
                {
                    latest = Some(manifest);
                }
            }
        }
        match latest.filter(|latest| latest.sequence > gone) {
            Some(manifest) => Ok(Found::Dirty(manifest)),
            // A node that has just begun, and sees nobody yet, knows nothing.
            None if silent || (view.members().len() == 1 && !self.is_settled()) => Err(AuthorityUnreachable),
            None => Ok(Found::Nothing),
        }
    }

    fn is_settled(&self) -> bool {
        self.0.settled.lock().is_some()
    }

    /// Asks the home of a name to do something, also while the members change, as long as that does not take
    /// long.
    pub(in crate::dirty) async fn decide(
        &self,
        name: &ObjectName,
        request: impl Fn(u64) -> Request,
    ) -> Result<Answer, AuthorityUnreachable> {
        let home = &self.0;
        for _ in 0..UNSETTLED_LOOKS {
            let view = View::of(&home.cooperation);
            let first = view.homes(name.id(&home.lake)).first().copied();
            let Some(node) = first else {
                return Err(AuthorityUnreachable);
            };
            match self.ask(node, request(view.digest)).await {
                Ok(Answer::Unsettled) => tokio::time::sleep(UNSETTLED_PAUSE).await,
                Ok(answer) => return Ok(answer),
                Err(error) => {
                    tracing::debug!(%error, object = ?name, "the home of a name cannot be asked");
                    return Err(AuthorityUnreachable);
                }
            }
        }
        Err(AuthorityUnreachable)
    }

    /// Brings an object to the lake if it is dirty, and what was lost out of the way. Errors: it is dirty
    /// yet.
    pub(crate) async fn settle(&self, name: &ObjectName) -> Result<(), FlushFailed> {
        match self.find(name).await? {
            Found::Nothing => return Ok(()),
            Found::Lost(_) => return self.clear_lost(name).await,
            Found::Dirty(_) => {}
        }
        let flush = |view| Request::Flush {
            view,
            name: name.clone(),
        };
        match self.decide(name, flush).await? {
            Answer::Done(_) => Ok(()),
            Answer::Nothing => self.clear_lost(name).await,
            _ => Err(FlushFailed::NotFlushed),
        }
    }

    /// Brings an object to the lake if it is dirty. Errors: it is dirty yet, or lost.
    pub(crate) async fn flush(&self, name: &ObjectName) -> Result<(), FlushFailed> {
        let flush = |view| Request::Flush {
            view,
            name: name.clone(),
        };
        match self.decide(name, flush).await? {
            Answer::Done(_) => Ok(()),
            _ => Err(FlushFailed::NotFlushed),
        }
    }

    async fn clear_lost(&self, name: &ObjectName) -> Result<(), FlushFailed> {
        match self.hold(name).await? {
            Some(held) => held.remove().await.map(drop).map_err(Into::into),
            None => Ok(()),
        }
    }

    /// Every dirty object of a bucket below a prefix, behind a key, in order.
    pub(crate) async fn list(
        &self,
        bucket: &str,
        prefix: &[u8],
        after: &[u8],
    ) -> Result<Vec<Arc<Manifest>>, AuthorityUnreachable> {
        let ask = |view: Arc<View>, home| async move {
            Ok(self.list_of(&view, home, (bucket, prefix, after)).await)
        };
        let mut manifests = ask_all(&self.0.cooperation, ask).await?;
        manifests.sort_by(|one, other| one.name.key.cmp(&other.name.key));
        Ok(manifests)
    }

    /// Those that are at home at one node. When it is out of reach, whoever is next home to them tells of
    /// them. `None`: not everybody who should know could be asked.
    async fn list_of(
        &self,
        view: &View,
        home: NodeId,
        of: (&str, &[u8], &[u8]),
    ) -> Option<Vec<Arc<Manifest>>> {
        match self.list_at(view, home, home, of).await {
            Ok(listed) => return listed,
            Err(error) => tracing::debug!(%error, "the next homes are asked for the names of a node"),
        }
        let others = view.members().iter().filter(|node| **node != home);
        let parts = others.map(|node| self.list_at(view, *node, home, of));
        let mut manifests = Vec::new();
        for part in join_all(parts).await {
            manifests.extend(part.ok()??);
        }
        Some(manifests)
    }

    /// What `node` tells of the names of `home`; `None` when it is not settled.
    async fn list_at(
        &self,
        view: &View,
        node: NodeId,
        home: NodeId,
        (bucket, prefix, after): (&str, &[u8], &[u8]),
    ) -> Result<Option<Vec<Arc<Manifest>>>, Unheard> {
        let (mut manifests, mut after) = (Vec::new(), after.to_vec());
        loop {
            let request = Request::List {
                view: view.digest,
                home,
                bucket: bucket.into(),
                prefix: prefix.into(),
                after,
            };
            let Answer::Done(body) = self.ask(node, request).await? else {
                return Ok(None);
            };
            let Ok(page) = Page::read(&body) else {
                return Ok(None);
            };
            after = page
                .manifests
                .last()
                .map_or_else(Vec::new, |last| last.name.key.to_vec());
            manifests.extend(page.manifests);
            if !page.more {
                return Ok(Some(manifests));
            }
        }
    }

    async fn ask(&self, node: NodeId, request: Request) -> Result<Answer, Unheard> {
        if node == self.0.cooperation.me() {
            // What a node does for itself it does for others in the same way; a box, as it may ask others in
            // turn.
            return Ok(Box::pin(self.0.answer(request)).await);
        }
        self.0.messenger.say(node, &request).await
    }
}

/// What everybody in the last layer says, also while the members change, as long as that does not take long.
/// Who is asked gives `None` while it is not settled.
pub(in crate::dirty) async fn ask_all<T, F>(
    cooperation: &Cooperation,
    ask: impl Fn(Arc<View>, NodeId) -> F,
) -> Result<Vec<T>, AuthorityUnreachable>
where
    F: Future<Output = Result<Option<Vec<T>>, AuthorityUnreachable>>,
{
    for _ in 0..UNSETTLED_LOOKS {
        let view = Arc::new(View::of(cooperation));
        let answers = view.members().iter().map(|node| ask(Arc::clone(&view), *node));
        let answers = join_all(answers).await.into_iter();
        let said: Option<Vec<_>> = answers.collect::<Result<_, _>>()?;
        if let Some(said) = said {
            return Ok(said.into_iter().flatten().collect());
        }
        tokio::time::sleep(UNSETTLED_PAUSE).await;
    }
    Err(AuthorityUnreachable)
}

fn manifest(bytes: &[u8]) -> Result<Arc<Manifest>, AuthorityUnreachable> {
    Manifest::of_bytes(bytes)
        .map(Arc::new)
        .map_err(|_| AuthorityUnreachable)
}
