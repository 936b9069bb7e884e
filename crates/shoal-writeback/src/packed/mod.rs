//! The lake with the packs of small objects in it: an object that the map of its rule names is read from its
//! pack, and all others are what the lake within says.
//!
//! Each question to the lake about a packed object is about its pack, in the caller's name: whoever may read
//! the pack may read its members. `docs/decisions/0048-small-objects-are-packed-at-the-lake.md` gives the
//! reasons.

mod blocks;
mod listing;
mod member;
mod names;
mod reads;

use std::sync::Arc;

use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use http::{HeaderMap, StatusCode};
use shoal_cache::exchange::{Admitted, ResponseResult};
use shoal_cache::fetch::Fetcher;
use shoal_cache::freshness::Reuse;
use shoal_cache::grants::QuestionStamp;
use shoal_cache::lake::{
    Asked, Lake, LakeRefusal, PackPlace, PageRequest, PinOutcome, ReadError, ReadRequest, Wanted, Write,
};
use shoal_cache::obtain::KeptBytes;
use shoal_cache::read_context::ReadContext;
use shoal_cache::single_flight::Underway;
use shoal_policy::ObjectId;
use shoal_s3::identity::Caller;
use shoal_s3::object::{ObjectName, Version};
use shoal_s3::operation::{Classified, Operation};
use shoal_s3::xml::ListedObject;

use crate::dirty::DirtyObjects;
use crate::dirty::packs::Packs;

/// A lake with packs in it.
pub struct PackedLake {
    /// The maps of packs, and the tiers before the lake.
    pub dirty: Arc<DirtyObjects>,
    /// The lake that has the packs and all other objects.
    pub within: Arc<dyn Lake>,
    /// The blocks of this node, with the parts that they use.
    pub fetcher: Arc<Fetcher>,
    /// Packed objects that are read from their packs, each by one read, and packs about which tasks ask.
    pub opening: Underway,
}

impl Lake for PackedLake {
    fn reuse(&self, name: &ObjectName, reuse: Reuse) -> Reuse {
        self.within.reuse(name, reuse)
    }

    fn granted(&self, request: &ReadRequest) -> Option<Arc<Version>> {
        if self.may_be_packed(request.name()) {
            return None;
        }
        self.within.granted(request)
    }

    fn pin<'a>(&'a self, request: &'a ReadRequest) -> BoxFuture<'a, Result<PinOutcome, ReadError>> {
        if self.may_be_packed(request.name()) {
            self.pin_by_map(request).boxed()
        } else {
            self.within.pin(request)
        }
    }

    fn ask<'a>(
        &'a self,
        request: &'a ReadRequest,
        is_answerable: bool,
    ) -> BoxFuture<'a, Result<Asked, ReadError>> {
        if self.may_be_packed(request.name()) {
            self.ask_by_map(request, is_answerable).boxed()
        } else {
            self.within.ask(request, is_answerable)
        }
    }

    fn learn_from_answer(
        &self,
        request: &ReadRequest,
        status: StatusCode,
        headers: &HeaderMap,
        stamp: QuestionStamp,
    ) {
        self.within.learn_from_answer(request, status, headers, stamp);
    }

    fn version<'a>(
        &'a self,
        caller: &'a Caller,
        name: &'a ObjectName,
    ) -> BoxFuture<'a, Result<Arc<Version>, LakeRefusal>> {
        if self.may_be_packed(name) {
            self.version_by_map(caller, name).boxed()
        } else {
            self.within.version(caller, name)
        }
    }

    fn kept<'a>(
        &'a self,
        context: &'a ReadContext,
        version: &'a Version,
        pack: Option<ObjectId>,
    ) -> BoxFuture<'a, Result<Option<Arc<dyn KeptBytes>>, LakeRefusal>> {
        match &context.name {
            Some(name) if self.may_be_packed(name) => self.kept_in_pack(context, name, version, pack).boxed(),
            _ => self.within.kept(context, version, pack),
        }
    }

    fn may_be_packed(&self, name: &ObjectName) -> bool {
        let is_current = self.dirty.entries.may_be_dirty(name);
        is_current && self.packs().of(name).is_some() || self.packs().hide(name)
    }

    fn places<'a>(
        &'a self,
        caller: &'a Caller,
        wanted: &'a [Wanted<'a>],
    ) -> BoxFuture<'a, Vec<Option<PackPlace>>> {
        self.places_in_packs(caller, wanted).boxed()
    }

    fn list<'a>(
        &'a self,
        caller: &'a Caller,
        page: PageRequest<'a>,
    ) -> BoxFuture<'a, Result<Vec<ListedObject>, LakeRefusal>> {
        if self.may_be_packed_below(page.bucket, page.prefix) {
            self.list_with_maps(caller, page).boxed()
        } else {
            self.within.list(caller, page)
        }
    }

    fn keeps_upload(&self, request: &Classified) -> bool {
        self.within.keeps_upload(request)
    }

    fn of_upload<'a>(
        &'a self,
        admitted: Box<Admitted>,
        name: &'a ObjectName,
    ) -> BoxFuture<'a, ResponseResult> {
        self.within.of_upload(admitted, name)
    }

    fn put<'a>(&'a self, admitted: Box<Admitted>, write: Write<'a>) -> BoxFuture<'a, ResponseResult> {
        self.within.put(admitted, write)
    }

    fn delete<'a>(&'a self, admitted: Box<Admitted>, name: &'a ObjectName) -> BoxFuture<'a, ResponseResult> {
        self.within.delete(admitted, name)
    }

    fn delete_many<'a>(&'a self, admitted: Box<Admitted>, bucket: &'a str) -> BoxFuture<'a, ResponseResult> {
        self.within.delete_many(admitted, bucket)
    }

    fn list_objects<'a>(&'a self, admitted: Box<Admitted>, bucket: &'a str) -> BoxFuture<'a, ResponseResult> {
        let prefix = admitted.classified.query.get("prefix").unwrap_or_default();
        if self.may_be_packed_below(bucket, prefix.as_bytes()) {
            self.list_objects_with_maps(admitted, bucket).boxed()
        } else {
            self.within.list_objects(admitted, bucket)
        }
    }

    fn list_uploads<'a>(&'a self, admitted: Box<Admitted>, bucket: &'a str) -> BoxFuture<'a, ResponseResult> {
        self.within.list_uploads(admitted, bucket)
    }

    fn forward(&self, admitted: Box<Admitted>) -> BoxFuture<'_, ResponseResult> {
        let Classified {
            operation,
            bucket,
            object,
            query,
            ..
        } = &admitted.classified;
        let is_list = *operation == Operation::OtherRead && object.is_none() && query.has("versions");
        match bucket.clone().filter(|_| is_list) {
            Some(bucket) => async move { self.list_objects(admitted, &bucket).await }.boxed(),
            None => self.within.forward(admitted),
        }
    }

    fn drain_round(&self) -> BoxFuture<'_, u64> {
        self.within.drain_round()
    }
}

impl PackedLake {
    fn packs(&self) -> &Packs {
        &self.dirty.entries.packs
    }

    fn may_be_packed_below(&self, bucket: &str, prefix: &[u8]) -> bool {
        self.packs().below(bucket, prefix).next().is_some()
    }
}
