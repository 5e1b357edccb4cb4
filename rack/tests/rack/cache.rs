//! The cache of blobs on a disk that is smaller than its limit.

use std::future::Future;
use std::io::Read;
use std::path::Path;
use std::pin::Pin;
use std::sync::Arc;

use basalt_rack::blobs::{BlobError, BlobOrigin, BlobStore, BlobStream, OriginError};
use basalt_rack::hash::sha256;
use tokio::sync::watch;

use super::namespace::{is_inside, mount};

/// An origin with blobs of one megabyte, each made of one letter.
struct Letters;

fn blob(letter: u8) -> (String, Vec<u8>) {
    let content = vec![letter; 1 << 20];
    (hex::encode(sha256(&content)), content)
}

impl BlobOrigin for Letters {
    fn fetch<'a>(
        &'a self,
        sha256: &'a str,
        offset: u64,
    ) -> Pin<Box<dyn Future<Output = Result<BlobStream, OriginError>> + Send + 'a>> {
        let found = (b'a'..=b'z').map(blob).find(|(name, _)| name == sha256);
        Box::pin(async move {
            let (_, content) = found.ok_or(OriginError::NotFound)?;
            let rest = content[usize::try_from(offset).unwrap()..].to_vec();
            let chunks: Vec<_> = rest.chunks(64 << 10).map(|chunk| Ok(chunk.to_vec().into())).collect();
            Ok(Box::pin(tokio_stream::iter(chunks)) as BlobStream)
        })
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_full_disk_loses_what_was_used_longest_ago_and_the_fetch_goes_on() {
    if !is_inside("cache::a_full_disk_loses_what_was_used_longest_ago_and_the_fetch_goes_on") {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    mount(&["-t", "tmpfs", "-o", "size=2560k", "none", &dir.path().to_string_lossy()]);
    // Its configured limit is a gigabyte.
    let store =
        BlobStore::open(dir.path(), Some(1 << 30), Arc::new(Letters), watch::channel(None).1).unwrap();
    let here = |letter| Path::new(dir.path()).join("blobs").join(blob(letter).0).exists();
    for letter in [b'a', b'b', b'c'] {
        let (name, content) = blob(letter);
        let mut bytes = Vec::new();
        store.get(&name).await.unwrap().file.read_to_end(&mut bytes).unwrap();
        assert!(bytes == content, "{name}");
    }
    assert!(here(b'c') && !here(b'a'), "{:?}", store.counts());

    // A blob that is being sent stays. So there is no room for another one.
    let (b, c) = (store.get(&blob(b'b').0).await, store.get(&blob(b'c').0).await);
    let full = store.get(&blob(b'd').0).await.unwrap_err();
    assert!(matches!(full, BlobError::DiskFull(_)), "{full}");
    drop((b, c));
    assert!(store.get(&blob(b'd').0).await.is_ok());
}
