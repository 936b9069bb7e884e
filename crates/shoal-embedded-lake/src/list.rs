//! Lists keys as S3 does, with the ETags that `s3s-fs` omits.

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use s3s::dto::{
    ETag, EncodingType, ListObjectsInput, ListObjectsOutput, ListObjectsV2Input, ListObjectsV2Output,
    ListPartsInput, ListPartsOutput, Object, ObjectStorageClass,
};
use s3s::{S3, S3Request, S3Response, S3Result};

use super::lake::DirectoryLake;
use super::layout::Layout;

/// Characters that `encoding-type=url` does not escape.
const PLAIN: &AsciiSet = &NON_ALPHANUMERIC
    .remove(b'/')
    .remove(b'-')
    .remove(b'.')
    .remove(b'_')
    .remove(b'~');

impl DirectoryLake {
    pub(super) async fn list_v2(
        &self,
        req: S3Request<ListObjectsV2Input>,
    ) -> S3Result<S3Response<ListObjectsV2Output>> {
        let bucket = req.input.bucket.clone();
        let shared = self.gate.read().await;
        let mut answer = self.fs.list_objects_v2(req).await?;
        for object in answer.output.contents.iter_mut().flatten() {
            self.complete(&bucket, object).await?;
        }
        drop(shared);
        let output = &mut answer.output;
        if output
            .encoding_type
            .as_ref()
            .is_some_and(|it| it.as_str() == EncodingType::URL)
        {
            let keys = output.contents.iter_mut().flatten().map(|object| &mut object.key);
            let prefixes = output
                .common_prefixes
                .iter_mut()
                .flatten()
                .map(|common| &mut common.prefix);
            let echoes = [&mut output.prefix, &mut output.delimiter, &mut output.start_after];
            keys.chain(prefixes).chain(echoes).for_each(encode);
        }
        Ok(answer)
    }

    pub(super) async fn list_v1(
        &self,
        req: S3Request<ListObjectsInput>,
    ) -> S3Result<S3Response<ListObjectsOutput>> {
        let mut marker = req.input.marker.clone();
        let answer = self.list_v2(req.map_input(Into::into)).await?;
        Ok(answer.map_output(|v2| {
            let mut next_marker = v2.next_continuation_token;
            if v2
                .encoding_type
                .as_ref()
                .is_some_and(|it| it.as_str() == EncodingType::URL)
            {
                [&mut marker, &mut next_marker].into_iter().for_each(encode);
            }
            ListObjectsOutput {
                contents: v2.contents,
                common_prefixes: v2.common_prefixes,
                delimiter: v2.delimiter,
                encoding_type: v2.encoding_type,
                name: v2.name,
                prefix: v2.prefix,
                max_keys: v2.max_keys,
                is_truncated: v2.is_truncated,
                marker: marker.or_else(|| Some(String::new())),
                next_marker,
                ..ListObjectsOutput::default()
            }
        }))
    }

    pub(super) async fn list_upload(
        &self,
        req: S3Request<ListPartsInput>,
    ) -> S3Result<S3Response<ListPartsOutput>> {
        self.require_upload(&req.input.upload_id)?;
        let mut answer = self.fs.list_parts(req).await?;
        if let Some(parts) = &mut answer.output.parts {
            parts.sort_by_key(|part| part.part_number);
        }
        Ok(answer)
    }

    async fn complete(&self, bucket: &str, object: &mut Object) -> S3Result<()> {
        if let Some(name) = object.key.take() {
            object.e_tag = Some(ETag::Strong(self.etag(bucket, &name).await?));
            object.storage_class = Some(ObjectStorageClass::from_static(ObjectStorageClass::STANDARD));
            object.key = Some(Layout::key_of(&name).into());
        }
        Ok(())
    }
}

fn encode(text: &mut Option<String>) {
    if let Some(text) = text {
        *text = utf8_percent_encode(text, PLAIN).to_string();
    }
}
